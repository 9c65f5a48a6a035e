package pebble

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"regexp"
	"strings"
	"syscall"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"github.com/plimsoll-dev/plimsoll"
)

const opOpen = "open store"

// place is the directory of a store. Its methods word the errors about it.
type place struct {
	fs  vfs.FS
	dir string
}

// panicError is a panic of Pebble. On some damage and on some failures Pebble panics, and this
// package returns an error instead.
type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprintf("pebble panicked: %v", p.value) }

func (p *panicError) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// guard runs f and returns its panic as an error.
func guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{value: r}
		}
	}()
	return f()
}

func isNotExist(err error) bool { return errors.Is(err, iofs.ErrNotExist) }

// explain words an error of reading the store, before it was opened for writing. file is the file
// that was read last.
func (p place) explain(file string, err error) error {
	var errno syscall.Errno
	if known := p.explainKnown(err); known != nil {
		return known
	}
	if errors.As(err, &errno) && errno != syscall.EIO && errno != syscall.ENOENT {
		return fmt.Errorf("%s in %s: %w", opOpen, p.dir, err)
	}
	return p.damaged(file, meta{}, err)
}

// explainWrite words an error that occurred after the whole store was read and found good.
func (p place) explainWrite(file string, err error) error {
	if known := p.explainKnown(err); known != nil {
		return known
	}
	if lsm.IsCorruptionError(err) {
		return p.damaged(file, meta{}, err)
	}
	return fmt.Errorf("%s in %s for writing: %w", opOpen, p.dir, err)
}

// explainKnown words errors whose meaning does not depend on the moment. It returns nil for
// others.
func (p place) explainKnown(err error) error {
	var failed *plimsoll.Error
	var path *iofs.PathError
	switch {
	case errors.Is(err, iofs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return &plimsoll.Error{Code: plimsoll.CodeDenied, Op: opOpen, Err: err, Msg: fmt.Sprintf(
			"the directory %s is not writable; give this user the right to write in it, or choose another directory", p.dir)}
	case errors.Is(err, syscall.ENOTDIR):
		return p.notDir(err)
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return &plimsoll.Error{Code: plimsoll.CodeExhausted, Op: opOpen, Err: err, Msg: fmt.Sprintf(
			"there is no space left for the store in %s; free some, nothing is lost", p.dir)}
	case errors.As(err, &path) && path.Op == "mkdir":
		// Below /proc, for example, the kernel says that there is no such file.
		return &plimsoll.Error{Code: plimsoll.CodeDenied, Op: opOpen, Err: err, Msg: fmt.Sprintf(
			"the directory %s cannot be made; choose another directory", p.dir)}
	case errors.As(err, &failed):
		return err
	}
	return nil
}

func (p place) notDir(err error) error {
	return &plimsoll.Error{Code: plimsoll.CodeInvalid, Op: opOpen, Err: err, Msg: fmt.Sprintf(
		"%s is a file, or lies below one, and the store needs a directory; choose another path", p.dir)}
}

// newer returns the error for files of a format that this version does not know.
func (p place) newer(what string, has, reads uint64) error {
	return &plimsoll.Error{Code: plimsoll.CodeConflict, Op: opOpen, Msg: fmt.Sprintf(
		"the store in %s was written by a newer version of plimsoll: its %s is version %d and this one reads up to %d; use that newer version (nothing was changed)",
		p.dir, what, has, reads)}
}

// damaged returns the error for an unreadable file, and says which data can be saved. last
// describes the last good batch, as far as it is known.
func (p place) damaged(file string, last meta, err error) error {
	file = p.faultyFile(file, err)
	name := p.fs.PathBase(file)
	if file == "" || file == p.dir {
		name = "of unknown name"
	}
	var save string
	switch {
	case name == witnessName || strings.HasPrefix(name, "OPTIONS"):
		save = fmt.Sprintf("This file holds no data: remove %s and start again, and all the rest is there", file)
	case strings.HasSuffix(name, ".log"):
		save = fmt.Sprintf("It holds the latest batches. If no good copy of it is to be had, move it and %s away and start again: "+
			"the store then goes on from the last batch before it", p.fs.PathJoin(p.dir, witnessName))
	case last.revision > 0:
		save = fmt.Sprintf(
			"The last good revision is %d; bring the file back from a backup of the whole directory", last.revision,
		)
	default:
		save = "Bring it back from a backup of the whole directory"
	}
	return &plimsoll.Error{Code: plimsoll.CodeCorrupt, Op: opOpen, Err: err, Msg: fmt.Sprintf(
		"the store file %s in %s is damaged. Its files were left as they are; copy the directory aside before anything else (cp -a %s %s.damaged). %s",
		name, p.dir, p.dir, p.dir, save)}
}

// missingEnd returns the error for acknowledged batches that are missing at the end of a readable
// store.
func (p place) missingEnd(last, durable meta) error {
	file := p.likelyCut()
	name := p.fs.PathBase(file)
	return &plimsoll.Error{Code: plimsoll.CodeCorrupt, Op: opOpen, Msg: fmt.Sprintf(
		"the store file %s in %s is damaged or cut short: revision %d of epoch %d was stored, and what can be read ends at revision %d of epoch %d. "+
			"Its files were left as they are; copy the directory aside before anything else (cp -a %s %s.damaged). "+
			"If no good copy of %s is to be had, remove %s and start again: the store then goes on from revision %d, and what came after is lost",
		name, p.dir, durable.revision, durable.epoch, last.revision, last.epoch, p.dir, p.dir, name,
		p.fs.PathJoin(p.dir, witnessName), last.revision,
	)}
}

// missingMiddle returns the error for batches that are missing in the middle: the batch with the
// count good is followed by the batch with the count next.
func (p place) missingMiddle(file string, good, next uint64) error {
	return &plimsoll.Error{Code: plimsoll.CodeCorrupt, Op: opOpen, Msg: fmt.Sprintf(
		"the store file %s in %s is damaged or missing: %d stored batches are gone, with others before and after them. "+
			"Its files were left as they are; copy the directory aside before anything else (cp -a %s %s.damaged), "+
			"and bring it back from a backup of the whole directory",
		p.fs.PathBase(file), p.dir, next-good-1, p.dir, p.dir,
	)}
}

// missing returns the error for a directory that has files of a store but no store.
func (p place) missing(what string) error {
	return &plimsoll.Error{Code: plimsoll.CodeCorrupt, Op: opOpen, Msg: fmt.Sprintf(
		"the store file %s in %s is missing, but other files of a store are there. They were left as they are; "+
			"bring it back from a backup of the whole directory, or choose another directory to begin anew", what, p.dir)}
}

var tableInError = regexp.MustCompile(`\bL\d: (\d{6}): `)

// faultyFile returns the file that is at fault. It may differ from file, which was read last.
func (p place) faultyFile(file string, err error) string {
	if err == nil {
		return file
	}
	// Pebble did not read this table: it is missing.
	if m := tableInError.FindStringSubmatch(err.Error()); m != nil {
		file = p.fs.PathJoin(p.dir, m[1]+".sst")
	}
	if strings.HasSuffix(file, ".log") || strings.HasSuffix(file, ".sst") {
		// If the manifest lost its end, Pebble looks for files that were removed long ago.
		if desc, err := lsm.Peek(p.dir, p.fs); err == nil && desc.Exists && !p.manifestEndsWell(desc.ManifestFilename) {
			return desc.ManifestFilename
		}
	}
	return file
}

// likelyCut returns the file that most likely lost its end. First comes the manifest, if it does
// not end between two of its records; then the youngest such log; then the youngest log.
func (p place) likelyCut() string {
	desc, err := lsm.Peek(p.dir, p.fs)
	if err != nil || !desc.Exists {
		return p.fs.PathJoin(p.dir, "MANIFEST-*")
	}
	if !p.manifestEndsWell(desc.ManifestFilename) {
		return desc.ManifestFilename
	}
	logs, err := wal.Scan(wal.Dir{FS: p.fs, Dirname: p.dir})
	if err != nil || len(logs) == 0 {
		return p.fs.PathJoin(p.dir, "*.log")
	}
	for i := len(logs) - 1; i >= 0; i-- {
		if !logEndsWell(logs[i]) {
			_, path := logs[i].SegmentLocation(0)
			return path
		}
	}
	_, path := logs[len(logs)-1].SegmentLocation(0)
	return path
}

func (p place) manifestEndsWell(path string) bool {
	file, err := p.fs.Open(path)
	if err != nil {
		return false
	}
	reader := record.NewReader(file, 0)
	var r io.Reader
	for err == nil {
		if r, err = reader.Next(); err == nil {
			_, err = io.Copy(io.Discard, r)
		}
	}
	return errors.Join(ignoreEOF(err), file.Close()) == nil
}

func logEndsWell(log wal.LogicalLog) bool {
	reader := log.OpenForRead()
	var r io.Reader
	var err error
	for err == nil {
		if r, _, err = reader.NextRecord(); err == nil {
			_, err = io.Copy(io.Discard, r)
		}
	}
	return errors.Join(ignoreEOF(err), reader.Close()) == nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
