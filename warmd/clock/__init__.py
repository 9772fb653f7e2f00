"""What depends on the time: templates that print it, and the day that ends.

`template` is the clock as a chat template sees it, which can be held still while a prefix is searched;
`moments` says under which other times to render; `days` notices that another day has begun.
"""

from warmd.clock.days import DayWatch
from warmd.clock.moments import Clock
from warmd.clock.template import TemplateClock

__all__ = ["Clock", "DayWatch", "TemplateClock"]
