"""The command."""

import sys

from tests.stores.amnesia import explore

sys.exit(explore.main())
