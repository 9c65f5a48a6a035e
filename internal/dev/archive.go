package dev

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/archive/sqlite"
	"github.com/plimsoll-dev/plimsoll/internal/coordinator"
	"github.com/plimsoll-dev/plimsoll/internal/disk"
)

// ArchiveConfig configures the archive of ended jobs that a coordinator writes. Its zero value is
// an archive beside the store.
type ArchiveConfig struct {
	None bool   // there is no archive
	File string // default: ArchivePath of the directory of the store
	// Accept is the id of an archive that is used in any case; see coordinator.Archive.
	Accept string
	// Retention bounds the archive. If Bytes is zero, the bound is a quarter of the disk, at most
	// MaxArchiveBytes.
	Retention archive.Retention
}

// MaxArchiveBytes is the largest default bound of the archive in bytes.
const MaxArchiveBytes = 50 << 30

// archiveShare is the fraction of its disk that the archive may take by default.
const archiveShare = 4

// ArchivePath returns the path of the archive of a role, by the role's own data directory: roles
// that have their directories side by side on one machine share it.
func ArchivePath(data string) string { return filepath.Join(filepath.Dir(data), "archive", "jobs.db") }

// Path returns the file of the archive of a store; empty if there is none.
func (c *ArchiveConfig) Path(store string) string {
	switch {
	case c.None:
		return ""
	case c.File != "":
		return c.File
	}
	return ArchivePath(store)
}

// Coordinator returns the archive for a coordinator whose store is in a directory. The archive's
// own directory is made when the file is opened. The coordinator tells what keeps it from writing,
// and leads meanwhile.
func (c *ArchiveConfig) Coordinator(store string) coordinator.Archive {
	path := c.Path(store)
	if path == "" {
		return coordinator.Archive{}
	}
	made := coordinator.Archive{
		Open: func(ctx context.Context) (archive.Writer, error) {
			if err := makeArchiveDir(path); err != nil {
				return nil, err
			}
			return sqlite.OpenWriter(ctx, path)
		},
		Read:      func() archive.Reader { return sqlite.OpenReader(path) },
		Retention: c.Retention, Accept: c.Accept,
	}
	if made.Retention.Bytes == 0 {
		made.Retention.Bytes = defaultArchiveBytes(path)
	}
	return made
}

// makeArchiveDir makes the directory of the archive, but none above it: a disk that is not mounted
// must not be taken for an empty archive. The group may read it, as it may the file.
func makeArchiveDir(path string) error {
	err := os.Mkdir(filepath.Dir(path), 0o750)
	if err == nil || errors.Is(err, os.ErrExist) {
		return nil
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeUnavailable, Op: "make the directory of the archive",
		Msg: "make it, or name another file with --archive", Err: err,
	}
}

// defaultArchiveBytes measures the disk on which an archive is, or will be.
func defaultArchiveBytes(path string) int64 {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		space, err := disk.Measure(dir)
		switch {
		case err == nil && space.Size > 0:
			return min(space.Size/archiveShare, MaxArchiveBytes)
		case err == nil, dir == filepath.Dir(dir):
			return MaxArchiveBytes
		}
	}
}

// Check reports the first invalid field.
func (c *ArchiveConfig) Check() error {
	keep := &c.Retention
	switch {
	case c.None && (c.Accept != "" || *keep != (archive.Retention{})):
		return plimsoll.Invalid("--archive", "is none; leave out the other flags of the archive")
	case keep.Age < 0:
		return plimsoll.Invalid("--archive-age", "is %v; give a duration such as 8760h", keep.Age)
	case keep.FailedAge < 0, keep.FailedAge != 0 && keep.FailedAge < keep.Age:
		return plimsoll.Invalid(
			"--archive-failed-age", "is %v; give at least %v, for which other jobs are kept", keep.FailedAge, keep.Age,
		)
	case keep.Jobs < 0:
		return plimsoll.Invalid("--archive-jobs", "is %d; give a number above zero", keep.Jobs)
	case keep.Bytes != 0 && keep.Bytes < minArchiveBytes:
		return plimsoll.Invalid("--archive-bytes", "is too little; give at least %s",
			plimsoll.FormatQuantity(plimsoll.Disk, minArchiveBytes))
	}
	return nil
}

// minArchiveBytes is the least bound on an archive in bytes.
const minArchiveBytes = 1 << 20

// FailedAge returns how long jobs that failed are kept if only the age of the others is given.
func FailedAge(age time.Duration) time.Duration { return 2 * age }
