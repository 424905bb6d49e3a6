"""Labels on their way out of the store: one file for each way of exporting them."""

from server.store.exporters.registry import EXPORTERS as EXPORTERS
from server.store.exporters.registry import Exporter as Exporter
from server.store.exporters.samples import LabelledSample as LabelledSample
