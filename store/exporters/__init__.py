"""Labels on their way out of the store: one file for each way of exporting them."""

from fedlens.store.exporters.registry import EXPORTERS as EXPORTERS
from fedlens.store.exporters.registry import Exporter as Exporter
from fedlens.store.exporters.samples import LabelledSample as LabelledSample
