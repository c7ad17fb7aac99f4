"""To go."""

from collbench.analysis.pairs import Pair as Pair
from collbench.analysis.results import Cell as Cell
from collbench.analysis.results import How as How
from collbench.analysis.results import cells_of as cells_of
from collbench.analysis.results import how as how
from collbench.analysis.results import methods as methods
from collbench.analysis.results import some_from as some_from
from collbench.analysis.results import without_collector as without_collector
from collbench.analysis.runs import Observed as Observed
from collbench.analysis.runs import SampleCheck as SampleCheck
from collbench.analysis.runs import gather as gather
from collbench.analysis.runs import observe as observe
