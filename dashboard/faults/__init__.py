"""Diagnosis on a page: the question, the process that answers it, its answer, and findings.

The dashboard loads no training code. It asks the command ``fedlens diagnose``, in a process of its
own, and keeps the answer in the run's folder: it is post-processing of what is public.
"""
