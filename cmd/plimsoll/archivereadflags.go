package main

import (
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
)

// archiveReadFlags tell a gateway where the archive of ended jobs is.
type archiveReadFlags struct {
	Archive string `help:"File of the coordinator's archive, for questions about jobs that have left the active store; default: archive/jobs.db beside --data. The file may come later." env:"PLIMSOLL_ARCHIVE" placeholder:"FILE"`
}

// reader returns the reader of the archive of a gateway with a data directory. It opens the file
// when it is asked the first question. The caller closes it.
func (f *archiveReadFlags) reader(data string) *sqlite.Reader {
	if f.Archive != "" {
		return sqlite.OpenReader(f.Archive)
	}
	return sqlite.OpenReader(dev.ArchivePath(data))
}
