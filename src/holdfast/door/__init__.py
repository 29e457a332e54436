"""The door of a running plan: the socket at which its process can be asked for something while it works."""
