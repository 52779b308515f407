collect_ignore = ["softsign", "doors.py"]  # for a copy of the package, where the test puts them
