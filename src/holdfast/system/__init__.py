"""What Holdfast asks of the machine: system calls, directories, safe paths, locks, SQLite, ids, progress."""
