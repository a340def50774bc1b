"""The public names of this package for other packages: processes, cores, files, and caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system._imports import lazy_exports

if TYPE_CHECKING:
    from chameleon_system._closeable import Closeable
    from chameleon_system._cores import CoreWatch, usable_cores
    from chameleon_system._disk_cache import (
        cache_key,
        cache_path,
        read_cached,
        read_cached_bytes,
        write_cached,
        write_cached_bytes,
    )
    from chameleon_system._files import (
        open_atomic,
        replace_folder,
        unused_path,
        user_cache_folder,
        write_atomic,
    )
    from chameleon_system._imports import (
        block_import,
        lazy_exports,
        pause_garbage_collection,
    )
    from chameleon_system._permissions import AMX, AMX_CALL, request_permission
    from chameleon_system._processes.answers import AnswerStream, read_requests
    from chameleon_system._processes.child import ChildProcess, describe_status
    from chameleon_system._processes.conversation import ChildEndedError, Conversation, Message
    from chameleon_system._processes.death_signal import die_with_parent
    from chameleon_system._processes.killing import kill_abandoned
    from chameleon_system._processes.stamps import (
        TOKEN,
        make_scratch_folder,
        remove_abandoned_folders,
        temporary_folder,
    )
    from chameleon_system._processor import (
        Processor,
        own_architecture,
        processor_name,
        this_processor,
    )
    from chameleon_system._thread_limit import allowed_cores, cpu_quota, usable_threads
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
