"""Diagnosis: faults in data that no one may see, named from a run's noised sums.

A run has released noised sums anyway. Beside what reference users would have released, sound and
under each fault of the library, they tell which fault is there and in what share of the users. All
of it is post-processing of what is public: it costs no privacy.
"""
