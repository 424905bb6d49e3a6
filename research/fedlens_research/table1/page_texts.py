"""What the page of results says around its figures."""

from __future__ import annotations

HEAD = """# How much is a private synthetic data set worth?

Written by `fedlens study table1` from what it measured; do not edit.

```bash
fedlens study table1 --quick
fedlens study table1 --rows mnist-record --seeds 0 1 2 --guarantee 1@1e-10
```

The first takes about five minutes on two cores that have nothing else to do, and its
students see a quarter as many images as those of the full table. Without
arguments the command fills in whatever the folder `runs/study` still lacks of the whole table; it
can be stopped at any time.

**All of this is simulation.** Accuracies are measured with real test images, which only their
owner can do, and which no guarantee covers. Test images, and the networks trained on real
training images that judge samples, are used to measure: no generator and no annotator depends on
them, and of samples one setting, how sure the annotator must be of them.

"""
MEANING = """\
Every guarantee is one budget for all that a run releases: the critic's rounds, the annotator's rounds,
and class masses, in one ledger. It is differential privacy by noise calibrated to the clip, which
implies Bayesian differential privacy at the same δ (but for a row "as published", and rows without
privacy: see what each row promises). Users: all images of one person; records: one
image of one silo.

| column | meaning |
|---|---|
| student | share of real test images that a small convolutional network gets right which saw {images} synthetic images alone: samples, changed samples (digits: affine maps; clothes: mirror images, and samples are moved a little) and mixtures of samples, labelled softly by the private annotator after the change. Mean ± deviation over seeds |
| MLP, residual | the same for two other students |
| best of 3 | the best of the three students of each seed, mean over seeds: how several others report theirs |
| own labels | the convolutional student with the classes that samples were asked for, without the annotator's labels |
| control | the first student with public noise images in the generator's place and the same annotator: what the annotator alone would teach. A generator is worth what is above it |
| annotator | the private annotator itself on real test images |
| recognised | share of samples whose requested class an independent LeNet sees in them, trained on real training images |
| unfiltered | the same before the annotator picks among candidates |
| Fréchet | squared Fréchet distance (Heusel et al. 2017, eq. 6) between real test images and samples in the features of that LeNet; smaller is better, comparable within this page only |
| coverage, density | Naeem et al. 2020, k = 5, in the same features: share of real images with a sample in their neighbourhood; how deep samples lie among real images |
| s, MiB | seconds and peak memory of training, nodes and server in one process, {threads}; not all rows were measured on the same machine, nor alone on it |

Rows without an annotator (the iterative critic alone, and the recipe as published) have students of
requested classes only. They have no control: noise images with requested classes say nothing of digits.

All rows were trained and measured on processors, without graphics processors. On Fashion-MNIST the
annotator's learning rate depends on the guarantee (`research/fedlens_research/table1/rows.py`).
"""  # noqa: E501


PROMISES = """\
The first holds for every person, however unusual. Bayesian differential privacy holds on average
over people drawn like those who took part, which is an assumption: *sound* with confidence bounds
for every distribution within the clip, *corrected* an estimate, *as published* the formulas of
arXiv:2003.00997, for comparison alone. The largest of all seeds. Where nodes report no norms, or
distances say nothing that is certain, the sound figure is that of differential privacy at its δ.
"""
