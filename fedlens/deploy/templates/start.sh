#!/bin/sh
# Runs what this folder is for until it is stopped (Ctrl-C or SIGTERM).
umask 077
exec fedlens deploy start "$$(dirname "$$0")"
