"""The errors that cross rooms, one line each; a remote site's failure is an `Outcome`, never one of these."""


class CrawlError(Exception):
    """The root of what crawlring raises on purpose."""


class ConfigError(CrawlError):
    """The operator asked for something that cannot be; exit status 2."""


class StoreUnavailable(CrawlError):
    """etcd or Redis did not answer in time; the caller tries again later. Exit status 3 for a command."""


class StoreRefused(StoreUnavailable):
    """etcd answered, and will not: a lease that is gone, a revision that is compacted."""


class StoreForbidden(StoreUnavailable):
    """A store answered, and does not let us in: only the operator can change that. Exit status 2 for a command."""


class DamagedSite(CrawlError):
    """What the store holds of one site cannot be read: that site is left alone, the others go on."""


class StaleEpoch(CrawlError):
    """A newer tenure owns the site: let it go."""


class FingerprintMismatch(ConfigError):
    """This node would compute other owners than the cluster does."""


class InvalidUrl(CrawlError):
    """Not an http(s) URL that can be crawled; the text is the reason."""


class InvalidTransition(CrawlError):
    """A state machine got an event that cannot happen: a bug, so crash."""
