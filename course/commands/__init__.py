"""What a terminal starts for a learner: JupyterLab, the doctor, unit 01 as a command."""
