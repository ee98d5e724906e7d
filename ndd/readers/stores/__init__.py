"""Where data lives: files, parts of files, indexes, containers (tar, TFRecord, RecordIO, LMDB)."""
