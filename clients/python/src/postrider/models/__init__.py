"""What the API answers with, as immutable values, and what its requests are made of.

The fields are those of the OpenAPI document; a test compares the two. Fields of a newer server that are not known
here are ignored, and words that are not known are passed on. A field that an older server lacks has a default. The
``repr`` of a value never shows a secret.
"""

from .destinations import *
from .operations import *
from .policies import *
from .records import *
from .simulation import *
from .stream import *
from .words import *
