package main

import (
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	working "github.com/plimsoll-dev/plimsoll/internal/state"
)

// noArchive is the value of --archive for a coordinator without an archive.
const noArchive = "none"

// archiveFlags belong to the commands that write the archive of ended jobs.
type archiveFlags struct {
	Archive          string        `help:"File of the archive, which keeps the jobs that have ended, or none: they are forgotten then. Default: archive/jobs.db beside the directory of the active state." env:"PLIMSOLL_ARCHIVE" placeholder:"FILE"`
	ArchiveAccept    string        `help:"Id of an archive that is used although it lacks jobs, or a later leader has written it: after one of the two was restored." placeholder:"ID"`
	ArchiveAge       time.Duration `help:"How long a job that succeeded stays in the archive. Default: no bound." env:"PLIMSOLL_ARCHIVE_AGE" placeholder:"DURATION"`
	ArchiveFailedAge time.Duration `help:"How long any other job stays there; at least --archive-age. Default: twice --archive-age." env:"PLIMSOLL_ARCHIVE_FAILED_AGE" placeholder:"DURATION"`
	ArchiveJobs      int64         `help:"Most jobs in the archive. When there are more, the oldest that succeeded go first, then the oldest others. Default: no bound." env:"PLIMSOLL_ARCHIVE_JOBS" placeholder:"COUNT"`
	ArchiveBytes     string        `help:"Most disk of the archive, such as 10Gi; the same jobs go first. Default: a quarter of the disk, at most 50Gi." env:"PLIMSOLL_ARCHIVE_BYTES" placeholder:"AMOUNT"`
	KeepEnded        time.Duration `help:"How long a job that has ended stays in the active state once the archive has it. Default: 5m; with --archive none 72h." env:"PLIMSOLL_KEEP_ENDED" placeholder:"DURATION"`
}

// parse returns the configuration of the archive, and sets how long ended jobs stay in the state.
func (f *archiveFlags) parse(c *working.Config) (a dev.ArchiveConfig, err error) {
	if f.KeepEnded < 0 {
		return a, plimsoll.Invalid("--keep-ended", "is %v; give a duration such as 5m", f.KeepEnded)
	}
	c.KeepEnded = int64(f.KeepEnded)
	a.Accept = f.ArchiveAccept
	if a.None = f.Archive == noArchive; !a.None {
		a.File = f.Archive
	}
	a.Retention = archive.Retention{Age: f.ArchiveAge, FailedAge: f.ArchiveFailedAge, Jobs: f.ArchiveJobs}
	if a.Retention.FailedAge == 0 {
		a.Retention.FailedAge = dev.FailedAge(f.ArchiveAge)
	}
	if f.ArchiveBytes != "" {
		bytes, err := plimsoll.ParseQuantity(plimsoll.Disk, f.ArchiveBytes)
		if err != nil {
			return a, plimsoll.Invalid("--archive-bytes", "%s", err)
		}
		a.Retention.Bytes = max(bytes, 1) // zero stands for the default there
	}
	return a, a.Check()
}
