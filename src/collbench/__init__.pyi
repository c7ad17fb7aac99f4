from collbench.api import advise as advise
from collbench.api import compare as compare
from collbench.api import load as load

__version__: str
