package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// pebbleFormat is the format of Pebble's own files. Since this format, logs record how far they
// were synced, and the footers of tables carry checksums. Raising it is a one-way step for every
// store that is opened, so it does not follow the library.
const pebbleFormat = lsm.FormatTableFormatV6

const lockName = "LOCK"

// Open opens the store in cfg.Dir, or creates one there. It first reads the existing content as a
// whole without changing a file. So a damaged or newer store is refused and left as it was.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	at, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	files := &reserve{}
	if cfg.FS == vfs.Default {
		files = newReserve(at.fs)
		at.fs = files
	}
	lock, err := at.lock()
	if err != nil {
		files.close()
		return nil, err
	}
	s, err := open(cfg, at, lock)
	if err != nil {
		files.close()
		return nil, errors.Join(err, lock.Close())
	}
	s.files = files
	return s, nil
}

func open(cfg Config, at place, lock io.Closer) (*Store, error) {
	found, err := at.inspect(cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, place: at, fence: newFence(at.fs), lock: lock}
	if s.db, err = openPebble(cfg, at, s.fence, false); err != nil {
		return nil, at.explainWrite(s.fence.last(), err)
	}
	if err := s.begin(found); err != nil {
		return nil, errors.Join(at.explainWrite(s.fence.last(), err), s.closePebble())
	}
	return s, nil
}

// begin takes over the inspected state and writes the parts that a new store lacks: first its own
// record, then the witness.
func (s *Store) begin(found inspection) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.last = found.meta
	if !found.exists {
		if err := s.writeMeta(meta{format: formatVersion, commits: 1}); err != nil {
			return err
		}
	}
	if s.witness, err = openWitness(s.fence, s.place.dir, found.witness, s.mu.last); err != nil {
		return err
	}
	if err := s.fence.err(); err != nil { // failures that were not reported to Pebble
		return errors.Join(err, s.witness.close())
	}
	return nil
}

// prepare makes the directory and resolves its canonical name, because the lock identifies a
// directory by its name.
func prepare(cfg Config) (place, error) {
	at := place{fs: cfg.FS, dir: cfg.Dir}
	if cfg.FS == vfs.Default {
		abs, err := filepath.Abs(cfg.Dir)
		if err != nil {
			return at, fmt.Errorf("%s in %s: %w", opOpen, cfg.Dir, err)
		}
		at.dir = abs
	}
	info, err := at.fs.Stat(at.dir)
	switch {
	case isNotExist(err):
		err = makeDir(at.fs, at.dir)
	case err == nil && !info.IsDir():
		return at, at.notDir(nil)
	}
	if err != nil {
		return at, at.explain(at.dir, err)
	}
	if cfg.FS == vfs.Default {
		if at.dir, err = filepath.EvalSymlinks(at.dir); err != nil {
			return at, fmt.Errorf("%s in %s: %w", opOpen, cfg.Dir, err)
		}
	}
	return at, nil
}

// makeDir makes a directory and its missing parents, each of them durably.
func makeDir(fs vfs.FS, dir string) error {
	parent := fs.PathDir(dir)
	if _, err := fs.Stat(parent); isNotExist(err) && parent != dir {
		if err := makeDir(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(fs, parent)
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// lock takes the directory for this Store alone. The kernel releases the lock at any end of the
// process.
func (p place) lock() (io.Closer, error) {
	path := p.fs.PathJoin(p.dir, lockName)
	lock, err := p.fs.Lock(path)
	if err == nil {
		return lock, nil
	}
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != syscall.EAGAIN || isNotExist(err) {
		return nil, p.explain(path, err) // the lock file itself cannot be made
	}
	who := "this process itself"
	if errors.Is(err, syscall.EAGAIN) {
		who = lockHolder(path)
	}
	return nil, &plimsoll.Error{Code: plimsoll.CodeAlreadyRunning, Op: opOpen, Msg: fmt.Sprintf(
		"the directory %s is in use by %s; stop it, or choose another directory", p.dir, who)}
}

// inspection is the result of inspect.
type inspection struct {
	meta    meta
	exists  bool // there is a store, and meta describes it
	witness bool // there is a witness
}

// inspect reads the whole directory and changes nothing there.
func (p place) inspect(cfg Config) (inspection, error) {
	data, witnessed, err := readWitness(p.fs, p.dir)
	witnessPath := p.fs.PathJoin(p.dir, witnessName)
	if err != nil {
		return inspection{}, p.explain(witnessPath, err)
	}
	var durable meta
	if witnessed {
		if durable, err = decodeWitness(data); err != nil {
			return inspection{}, p.damaged(witnessPath, meta{}, err)
		}
		if durable.format != formatVersion {
			return inspection{}, p.newer("format", uint64(durable.format), formatVersion)
		}
	}
	if err := p.checkPebbleFormat(); err != nil {
		return inspection{}, err
	}
	exists, err := p.hasPebble(witnessed)
	if err != nil || !exists {
		return inspection{}, err
	}
	last, found, err := p.readAll(cfg)
	switch {
	case err != nil:
		return inspection{}, err
	case last.commits < durable.commits:
		return inspection{}, p.missingEnd(last, durable)
	case found && !witnessed && last.commits > 1:
		cfg.Logger.Warn("the store has no witness; a new one is begun", "dir", p.dir, "revision", last.revision)
	}
	return inspection{meta: last, exists: found, witness: witnessed}, nil
}

// readAll opens Pebble behind a fence that is shut from the start, and reads everything.
func (p place) readAll(cfg Config) (last meta, found bool, err error) {
	fence := newFence(p.fs)
	fence.shut(errors.New("the store is only inspected"))
	db, err := openPebble(cfg, p, fence, true)
	if err != nil {
		return meta{}, false, p.explain(fence.last(), err)
	}
	v := &visitor{
		record: func(wire.Kind, string, []byte) error { return nil },
		chunk:  func(uint64, wire.EventChunk) error { return nil },
	}
	last, found, err = scan(context.Background(), db, v)
	if err == nil && found {
		if last.format != formatVersion {
			err = p.newer("format", uint64(last.format), formatVersion)
		} else {
			err = guard(func() error { return p.audit(db, last) })
		}
	}
	file := fence.last()
	closeErr := guard(db.Close)
	var known *plimsoll.Error
	switch {
	case errors.As(err, &known):
		return meta{}, false, err
	case err != nil:
		return meta{}, false, p.damaged(file, last, err)
	case closeErr != nil:
		return meta{}, false, fmt.Errorf("close the inspected store in %s: %w", p.dir, closeErr)
	}
	return last, found, nil
}

// checkPebbleFormat refuses a newer format of Pebble's before Pebble sees it.
func (p place) checkPebbleFormat() error {
	const marker = "format-version"
	value, err := guardMarker(p.fs, p.dir, marker)
	if err != nil {
		return p.damaged(p.fs.PathJoin(p.dir, "marker."+marker+".*"), meta{}, err)
	}
	if value == "" {
		return nil
	}
	version, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return p.damaged(p.fs.PathJoin(p.dir, "marker."+marker+".*"), meta{}, err)
	}
	if version > uint64(lsm.FormatNewest) {
		return p.newer("storage format", version, uint64(lsm.FormatNewest))
	}
	return nil
}

func guardMarker(fs vfs.FS, dir, marker string) (value string, err error) {
	err = guard(func() (err error) {
		value, err = atomicfs.ReadMarker(fs, dir, marker)
		return err
	})
	return value, err
}

// hasPebble reports whether Pebble has files here. Without its marker, Pebble would begin a new
// store and remove the files that it does not know.
func (p place) hasPebble(witnessed bool) (bool, error) {
	value, err := guardMarker(p.fs, p.dir, "manifest")
	if err != nil {
		return false, p.damaged(p.fs.PathJoin(p.dir, "marker.manifest.*"), meta{}, err)
	}
	if value != "" {
		return true, nil
	}
	names, err := p.fs.List(p.dir)
	if err != nil {
		return false, p.explain(p.dir, err)
	}
	for _, name := range names {
		if witnessed || strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".log") {
			return false, p.missing("marker.manifest.*")
		}
	}
	return false, nil
}

// openPebble opens Pebble behind a fence. If a flush cannot succeed, Pebble's Open never returns.
// It is abandoned then, and the fence keeps it from changing files.
func openPebble(cfg Config, at place, fence *fence, readOnly bool) (*lsm.DB, error) {
	log := &logger{log: cfg.Logger, fence: fence}
	tables := lsm.NewFileCache(1, openTables)
	opts := &lsm.Options{
		FS:                          fence,
		ReadOnly:                    readOnly,
		ErrorIfNotExists:            readOnly,
		FormatMajorVersion:          pebbleFormat,
		CacheSize:                   cfg.CacheBytes,
		MemTableSize:                uint64(cfg.MemTableBytes),
		MemTableStopWritesThreshold: 8,
		L0StopWritesThreshold:       1000, // a slow commit is worse than a slow load
		FileCache:                   tables,
		CompactionConcurrencyRange:  func() (lower, upper int) { return 1, 1 },
		Logger:                      log,
		EventListener:               log.listener(),
	}
	type outcome struct {
		db  *lsm.DB
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		defer tables.Unref() // Pebble holds its own reference
		var o outcome
		o.err = guard(func() (err error) {
			o.db, err = lsm.Open(at.dir, opts)
			return err
		})
		done <- o
	}()
	select {
	case o := <-done:
		return o.db, o.err
	case <-fence.hung:
		return nil, fence.err()
	}
}
