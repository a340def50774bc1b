"""What other packages may import of this one: processes, cores, files, caches, and words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system._imports import lazy_exports

if TYPE_CHECKING:
    from chameleon_system._closing import Closing
    from chameleon_system._cores import CoreWatch
    from chameleon_system._files import (
        replace_folder,
        replacing,
        unused,
        user_cache_folder,
        write_whole,
    )
    from chameleon_system._imports import (
        lazy_exports,
        without,
        without_collecting,
    )
    from chameleon_system._kept import KeptFile, surroundings
    from chameleon_system._permissions import AMX, AMX_CALL, refusal
    from chameleon_system._processes.answering import Answers, requests
    from chameleon_system._processes.child import ChildProcess, status_words
    from chameleon_system._processes.conversation import ChildEndedError, Conversation, Message
    from chameleon_system._processes.death_signal import die_with
    from chameleon_system._processes.ending import remove_abandoned
    from chameleon_system._processes.stamps import (
        TOKEN,
        make_scratch,
        temporary_folder,
    )
    from chameleon_system._processor import (
        Processor,
        own_architecture,
        processor_name,
        this_processor,
    )
    from chameleon_system._thread_limit import allowed_cores, cpu_quota, usable_cores
    from chameleon_system._words import (
        counted,
        did_you_mean,
        in_one_line,
        in_seconds,
        listing,
        with_article,
    )
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
