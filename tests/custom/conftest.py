collect_ignore = ["doors.py"]  # for a process of its own
