"""Where nbgrader's own commands find this course, and how `course grade` grades it.

Run nbgrader's commands at the root of the repository, as its manual shows. `make notebooks` writes
the release version; `nbgrader generate_assignment 03_large_batch --force` works too.
"""

import os
import secrets
import tempfile
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager

c = get_config()  # noqa: F821 - given by traitlets

here = Path(__file__).parent.resolve() if "__file__" in globals() else Path.cwd()
c.CourseDirectory.root = str(here)
c.CourseDirectory.course_id = "scaling-pytorch"
c.CourseDirectory.source_directory = "build/source"
c.CourseDirectory.release_directory = "notebooks"

# Seconds, bytes, workers and retries of `course grade`: docs/grading.md lists all of them.
# c.CourseGrading.cell_seconds = 120
# c.CourseGrading.memory_gib = 8

# No grade depends on an experiment (cells tagged so), so grading does not wait for training runs.
c.Execute.skip_cells_with_tag = "experiment"
c.Execute.timeout = 120
c.Execute.error_on_timeout = {
    "ename": "CellTimeoutError",
    "evalue": "this cell ran for more than 120 s",
    "traceback": ["this cell ran for more than 120 s"],
}
c.ExecutePreprocessor.iopub_timeout = 30


class GradingKernels(AsyncKernelManager):
    """Kernels of nbgrader's autograde and validate, which no answer kept on this machine reaches.

    Only those: JupyterLab reads this file too, and in its kernels answers go on from part to part.
    They talk through sockets in the temporary folder: a port that is free now, a rank may take
    before the kernel does.
    """

    async def start_kernel(self, **options):
        self.transport = "ipc"
        self.ip = os.path.join(tempfile.gettempdir(), f"kernel-{secrets.token_hex(8)}")
        options["env"] = {**os.environ, **options.get("env", {}), "COURSE_ANSWERS": "off"}
        return await super().start_kernel(**options)


c.Execute.kernel_manager_class = GradingKernels

# Nothing of a submission may run in the browser of whoever reads its feedback or grades it in
# formgrader: neither an output, nor a free-text answer, which nbgrader's pages show without
# cleaning it.
c.HTMLExporter.sanitize_html = True
c.HTMLExporter.filters = {
    "markdown2html": "instructor.grading.sanitize.safe_markdown",
    "highlight_code": "instructor.grading.sanitize.safe_code",
}
