"""Words of the page, apart from its figures."""

HEAD = """\
# Which faults does a diagnosis find, and in how few users?

Written by `fedlens study bugs` from what it measured; do not edit.

```bash
fedlens study bugs --quick
fedlens study bugs --data-dir DATA
```

The first takes about ten minutes on two cores and needs no download; without `--quick` the command
fills in whatever its folder still lacks of the whole plan, and can be stopped at any time.

**All of this is simulation.** {draws:,} diagnoses in {trials:,} trials; seeds: {seeds}. Each is of
what a run of preset `demo` would release by its warm-up, its focused critic and its annotator, at
the DP ε of its whole schedule; the annotator's features are framed by real images here, by
synthetic ones in a run, so that its part is at its best. Users hold 10 images each. Who takes part
(of up to three times as many people), who has the fault and the noise are new in each draw; each
seed has people, a reference of {images} images and stand-ins for samples of its own, which share no
image. Draws of one seed share these, so that they differ less than runs would: intervals in
brackets are 95% binomial ones and take them for independent. States of later tasks are those of ε =
{states:g} throughout. These diagnoses look at the library's own amounts alone; `fedlens diagnose`
also looks between them. The code that was measured has the digest `{method}`. The CSV file beside
this page has every rate: each question, fault, share and ε.
"""

SMALLEST = """\
## The smallest detectable share

First what the diagnosis says of itself (it would find the fault in nine of ten runs; mean over
seeds). In brackets what was measured: the least share of users that was tried from which on nine of
ten draws named the fault as the surest finding and believed the reference. *never*: in no share; –:
in none that was tried. Where the two differ, believe the second. The last number is a bound: in
fewer users than that *no reader of these sums* could see the fault nine times in ten at 5% false
alarms, even one that knew users' data and the fault exactly, because of the privacy noise alone
([Neyman and Pearson 1933](bibliography.md#neyman-and-pearson-1933)). What lies between the bound
and the first number is the price of not knowing: which users there are, how the reference differs
from them, and which of all hypotheses it is.
"""

CLEAN = """\
## False alarms

Users without a fault. *Refused*: the reference was taken for one of another source, and nothing was
claimed.
"""

SIDE_BY_SIDE = """\
## Ways of looking side by side, in really trained runs

Preset `demo`, each run with its own seed, DP ε = {epsilon:.2f} at δ = 1e-5. One run each: these
are examples, not rates. The eye is a network that knows real sound and faulty images of each class.
Its errors are measured on another sound run, so that it is the best eye there is; its interval
counts the chance of the samples, not that of the run, and the rows of sound users show what that
leaves out. The probe costs ({probe_epsilon:g}, {probe_delta:g})-DP beside the run; the ε in its row
is that of all that these users were asked until then, probes for other rows too. What it counts
is no share of faulty users: some sound ones may count too, as the rows of sound users say.
"""

SHEETS = """\
Samples of sound users, of users of whom {share:.0%} hold turned images, and of the latter by an
iterative convolutional critic, all three at the same classical DP ε for users\
"""
