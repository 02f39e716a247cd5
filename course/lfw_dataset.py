"""Unit 01 as the command `python -m course.lfw_dataset`: see course/commands/lfw_dataset.py."""

from course.commands.lfw_dataset import main

if __name__ == "__main__":
    main()
