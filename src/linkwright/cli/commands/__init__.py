"""One module a command (or a small family of commands), imported only when that command is used."""
