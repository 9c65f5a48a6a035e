package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

const (
	writerCache = 16 << 20 // bytes of pages
	checkCache  = 1 << 20

	chunkBytes = 64 << 10 // of packed tasks
	chunkTasks = 256
	chunkShift = 24 // a chunk's number is its job's, then the number of its first task

	foldBytes = 4 << 20 // bytes of the recent jobs at which their words go into the lists

	// jobOverhead and wordOverhead are bytes that a job takes beside its own, by measurement.
	jobOverhead  = 120
	wordOverhead = 26
)

// Writer is an archive.Writer in an SQLite file.
type Writer struct {
	path string
	// checking counts the calls of Check, whose end Close waits for.
	checking sync.WaitGroup
	file     *sqlitefile.Owner
	c        *conn // of file; nil once it is closed
	oldest   int64 // end of the job that ended first; -1: to be read
}

var _ archive.Writer = (*Writer)(nil)

// OpenWriter opens an archive, and makes the file if it is not there. The directory must be there.
func OpenWriter(ctx context.Context, path string) (*Writer, error) {
	file, err := kind.Own(ctx, path, writerCache)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was done
	}
	return &Writer{path: path, file: file, c: &conn{file.Conn, usual}, oldest: -1}, nil
}

// Close gives up the file.
func (w *Writer) Close() error {
	w.checking.Wait()
	if w.c == nil {
		return nil
	}
	w.c = nil
	return w.file.Close() //nolint:wrapcheck // it names the file
}

func (w *Writer) closed() error {
	return plimsoll.Errorf(plimsoll.CodeUnavailable, "the archive %s is closed", w.path)
}

// change runs do in a transaction of the leader with an epoch, and stores the state that it
// leaves. Without a change there is no commit.
func (w *Writer) change(ctx context.Context, epoch uint64, do func(*state) (changed bool, err error)) (*state, error) {
	if w.c == nil {
		return nil, w.closed()
	}
	if epoch > math.MaxInt64 {
		return nil, plimsoll.Invalid("epoch", "%d is too large", epoch)
	}
	var s *state
	err := w.c.Change(ctx, func() (err error) {
		if s, err = w.c.readState(); err != nil {
			return err
		}
		if int64(epoch) < s.epoch {
			return plimsoll.Errorf(
				plimsoll.CodeStale, "epoch %d writes to the archive %s, which epoch %d has taken over", epoch, w.path,
				s.epoch,
			)
		}
		changed, err := do(s)
		if !changed || err != nil {
			return err
		}
		return w.c.writeState(s)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Fence implements archive.Writer.
func (w *Writer) Fence(ctx context.Context, epoch uint64) (archive.Mark, error) {
	return w.fence(ctx, epoch, false)
}

// Accept implements archive.Writer.
func (w *Writer) Accept(ctx context.Context, epoch uint64) (archive.Mark, error) {
	return w.fence(ctx, epoch, true)
}

func (w *Writer) fence(ctx context.Context, epoch uint64, accept bool) (archive.Mark, error) {
	claimed := epoch
	if accept {
		claimed = math.MaxInt64
	}
	s, err := w.change(ctx, claimed, func(s *state) (bool, error) {
		changed := accept || s.epoch != int64(epoch)
		s.epoch = int64(epoch)
		if accept {
			s.generation++
		}
		return changed, nil
	})
	if err != nil {
		return archive.Mark{}, fmt.Errorf("lead the archive: %w", err)
	}
	return w.mark(ctx, s)
}

// mark returns the mark of a state, with the oldest job.
func (w *Writer) mark(ctx context.Context, s *state) (archive.Mark, error) {
	if err := w.findOldest(ctx); err != nil {
		return archive.Mark{}, err
	}
	return s.mark(w.oldest), nil
}

// findOldest reads the end of the job that ended first, unless it is known.
func (w *Writer) findOldest(ctx context.Context) error {
	if w.oldest >= 0 {
		return nil
	}
	return w.c.View(ctx, func() error {
		oldest, err := w.c.oldest()
		if err == nil {
			w.oldest = oldest
		}
		return err
	})
}

// Write implements archive.Writer.
func (w *Writer) Write(
	ctx context.Context, epoch uint64, jobs []archive.Job, attempts []archive.Attempts,
) (archive.Mark, error) {
	if err := archive.CheckWrite(jobs, attempts); err != nil {
		return archive.Mark{}, err
	}
	if w.c == nil {
		return archive.Mark{}, w.closed()
	}
	if err := w.file.CheckLog(ctx); err != nil {
		return archive.Mark{}, err //nolint:wrapcheck // it says what was done
	}
	if err := w.findOldest(ctx); err != nil { // before the jobs are there, so that a failure leaves nothing undone
		return archive.Mark{}, err
	}
	oldest := w.oldest
	s, err := w.change(ctx, epoch, func(s *state) (bool, error) {
		wrote, err := w.writeJobs(ctx, s, jobs)
		if err != nil {
			return false, err
		}
		for _, j := range wrote {
			if at := int64(j.finished); oldest == 0 || at < oldest {
				oldest = at
			}
		}
		changed, err := w.writeAttempts(s, attempts)
		if err != nil {
			return false, err
		}
		if len(wrote) > 0 {
			if err := w.noteRecent(s, wrote); err != nil {
				return false, err
			}
		}
		changed = changed || len(wrote) > 0
		if changed {
			s.sequence++
		}
		return changed, nil
	})
	if err != nil {
		return archive.Mark{}, fmt.Errorf("write %d jobs: %w", len(jobs), err)
	}
	w.oldest = oldest
	return s.mark(oldest), nil
}

// writeJobs writes the jobs that are not there and were not deleted, and returns them.
func (w *Writer) writeJobs(ctx context.Context, s *state, jobs []archive.Job) ([]recent, error) {
	var jobsWritten []recent
	known := map[string]word{}
	for i := range jobs {
		j := &jobs[i]
		if err := kind.Ended(ctx); err != nil {
			return nil, err
		}
		there, err := w.deleted(s, j.UID)
		if err != nil {
			return nil, err
		}
		if there {
			continue
		}
		words, bytes, err := w.writeJob(s, j, known)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", j.UID, err)
		}
		if words == nil {
			continue
		}
		jobsWritten = append(jobsWritten, recent{entryOf(j.UID, j.Finished), words})
		s.noteTimes(&j.Head)
		s.next++
		s.jobs++
		s.tasks += int64(j.Tasks)
		s.bytes += bytes
		if s.early > 0 {
			attempts, err := w.c.attemptsOf(j.UID)
			if err != nil {
				return nil, err
			}
			s.early -= attempts
		}
	}
	return jobsWritten, nil
}

// deleted reports whether a job was deleted from the archive.
func (w *Writer) deleted(s *state, uid plimsoll.UID) (bool, error) {
	if s.tombstones == 0 {
		return false, nil
	}
	row, err := w.c.First("SELECT at FROM deleted WHERE uid = ?", uid[:])
	return row != nil, err
}

// writeJob writes a job with its tasks under the next number, unless it is there. It returns the
// words of the job, or nil if it was there, and its bytes in Mark.Bytes.
func (w *Writer) writeJob(s *state, j *archive.Job, known map[string]word) (words []word, bytes int64, err error) {
	p := packer{c: w.c, job: s.next, uid: j.UID}
	if err := p.pack(j); errors.Is(err, errKnown) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, err
	}
	words = wordsOf(&j.Head, p.results, known)
	r := row{Head: j.Head, results: p.results, generation: uint64(s.generation)}
	r.body = crc32.Update(crc32.Checksum(j.Spec, castagnoli), castagnoli, j.Status)
	bytes = int64(j.Head.Bytes()+len(j.Spec)+len(j.Status)+jobOverhead+len(words)*wordOverhead) + p.bytes
	r.bytes = uint64(bytes)
	n, err := w.c.Exec("INSERT INTO job VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (uid) DO NOTHING", s.next,
		j.UID[:], j.ID, int64(signature(words)), encodeRow(&r), j.Spec, j.Status, p.inline)
	if n == 0 {
		words = nil
	}
	return words, bytes, err
}

// noteTimes keeps how far the submit and the end of a job may lie apart.
func (s *state) noteTimes(h *archive.Head) {
	took := h.Finished - h.UID.Submitted()
	s.longest = max(s.longest, took)
	s.before = max(s.before, -took)
}

// packer packs the tasks of a job into chunks, and into its row if they fit into one.
type packer struct {
	c        *conn
	job      int64
	uid      plimsoll.UID
	data     []byte
	inline   []byte
	first    int32 // number of the first task in data
	count    int32 // tasks up to now
	failed   int32
	least    string
	greatest string
	mask     uint64 // results in data
	results  uint64 // results of the job
	bytes    int64
}

func (p *packer) pack(j *archive.Job) error {
	var err error
	for r := range j.Records {
		if len(p.data) > 0 && (len(p.data)+r.Bytes() > chunkBytes || p.count-p.first >= chunkTasks) {
			if err = p.flush(); err != nil {
				break
			}
		}
		if p.first == p.count {
			p.least, p.greatest = r.Key, r.Key
		}
		p.least, p.greatest = min(p.least, r.Key), max(p.greatest, r.Key)
		p.data = appendTask(p.data, &r)
		p.mask |= resultBit(r.Result)
		p.count++
		if r.Failed() {
			p.failed++
		}
	}
	if err == nil {
		err = archive.CheckTasks(&j.Head, p.count, p.failed)
	}
	switch {
	case err != nil:
		return err
	case p.first > 0:
		return p.flush()
	case p.count > 0:
		p.results |= p.mask
		p.bytes += int64(len(p.data))
		p.inline = sqlitefile.Sealed(p.data)
	}
	return nil
}

// errKnown ends the packing of a job that is in the archive already.
var errKnown = errors.New("the job is in the archive")

func (p *packer) flush() error {
	if p.count >= 1<<chunkShift {
		return plimsoll.Invalid("tasks", "there are more than %d", 1<<chunkShift)
	}
	if p.first == 0 { // the job's row is written behind its chunks, so this asks whether it is there
		row, err := p.c.First("SELECT n FROM job WHERE uid = ?", p.uid[:])
		if err != nil {
			return err
		}
		if row != nil {
			return errKnown
		}
	}
	data := sqlitefile.Sealed(p.data)
	_, err := p.c.Exec("INSERT INTO chunk VALUES (?, ?, ?, ?, ?)", p.job<<chunkShift|int64(p.first), int64(p.mask),
		p.least, p.greatest, data)
	p.bytes += int64(len(data) + len(p.least) + len(p.greatest) + 32)
	p.results |= p.mask
	p.data, p.first, p.mask = data[:0], p.count, 0
	return err
}

func (w *Writer) writeAttempts(s *state, attempts []archive.Attempts) (changed bool, err error) {
	for i := range attempts {
		a := &attempts[i]
		deleted, err := w.deleted(s, a.UID)
		if err != nil {
			return false, err
		}
		if deleted {
			continue
		}
		n, err := w.c.Exec("INSERT OR IGNORE INTO attempts VALUES (?, ?, ?, ?)", a.UID[:], a.TaskKey, int64(a.First),
			sqlitefile.Sealed(slices.Clone(a.Value)))
		if err != nil {
			return false, fmt.Errorf("attempts of job %s: %w", a.UID, err)
		}
		if n == 0 {
			continue
		}
		changed = true
		bytes := attemptsBytes(len(a.TaskKey), len(a.Value))
		s.bytes += bytes
		job, err := w.c.First("SELECT n FROM job WHERE uid = ?", a.UID[:])
		if err != nil {
			return false, err
		}
		if job == nil {
			s.early += bytes
		}
	}
	return changed, nil
}

// attemptsBytes returns the part of a chunk of attempts in Mark.Bytes. key and value are the
// lengths of the task's key and of the chunk.
func attemptsBytes(key, value int) int64 { return int64(key+value) + 40 }

// noteRecent stores the words by which the jobs of a Write are found. They go into the lists later,
// together with those of other Writes: a block is then written once for many jobs.
func (w *Writer) noteRecent(s *state, wrote []recent) error {
	data := encodeRecent(wrote)
	if _, err := w.c.Exec("INSERT INTO recent VALUES (?, ?)", s.sequence, data); err != nil {
		return err
	}
	s.pending += int64(len(wrote))
	s.pendingBytes += int64(len(data))
	if s.pending < w.c.sizes.fold && s.pendingBytes < foldBytes {
		return nil
	}
	return w.c.fold(s)
}

// Delete implements archive.Writer.
func (w *Writer) Delete(ctx context.Context, epoch uint64, uids []plimsoll.UID, now int64) error {
	_, err := w.change(ctx, epoch, func(s *state) (bool, error) {
		for _, uid := range uids {
			n, err := w.c.Exec("INSERT OR IGNORE INTO deleted VALUES (?, ?)", uid[:], now)
			if err != nil {
				return false, err
			}
			s.tombstones += n
		}
		if err := w.remove(ctx, s, uids); err != nil {
			return false, err
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("delete %d jobs: %w", len(uids), err)
	}
	w.oldest = -1
	return nil
}

// remove takes jobs out with all that belongs to them. A job that is not there may have attempts.
func (w *Writer) remove(ctx context.Context, s *state, uids []plimsoll.UID) error {
	var gone []recent
	for _, uid := range uids {
		if err := kind.Ended(ctx); err != nil {
			return err
		}
		attempts, err := w.removeAttempts(uid)
		if err != nil {
			return err
		}
		s.bytes -= attempts
		found, err := w.c.First("SELECT n, id, head FROM job WHERE uid = ?", uid[:])
		if err != nil {
			return err
		}
		if found == nil {
			s.early -= attempts
			continue
		}
		n, _ := found[0].(int64)
		s.jobs--
		id, _ := found[1].(string)
		head, _ := found[2].([]byte)
		// If the row cannot be read, its entries stay in the lists. Readers skip entries without a
		// job.
		if r, err := decodeRow(uid, id, head); err == nil {
			s.tasks -= int64(r.Tasks)
			s.bytes -= int64(r.bytes)
			gone = append(gone, recent{entryOf(uid, r.Finished), wordsOf(&r.Head, r.results, map[string]word{})})
		}
		if _, err := w.c.Exec("DELETE FROM job WHERE n = ?", n); err != nil {
			return err
		}
		if _, err := w.c.Exec(
			"DELETE FROM chunk WHERE n BETWEEN ? AND ?", n<<chunkShift, (n+1)<<chunkShift-1,
		); err != nil {
			return err
		}
	}
	return w.unlist(s, gone)
}

// attemptsOf returns the part of the attempts of a job in Mark.Bytes.
func (c *conn) attemptsOf(uid plimsoll.UID) (bytes int64, err error) {
	err = c.Rows(func(row []driver.Value) error {
		key, _ := row[0].(int64)
		value, _ := row[1].(int64)
		bytes += attemptsBytes(int(key), int(value)-sqlitefile.ChecksumBytes)
		return nil
	}, "SELECT length(CAST(task AS BLOB)), length(value) FROM attempts WHERE uid = ?", uid[:])
	return bytes, err
}

func (w *Writer) removeAttempts(uid plimsoll.UID) (bytes int64, err error) {
	if bytes, err = w.c.attemptsOf(uid); err != nil || bytes == 0 {
		return 0, err
	}
	_, err = w.c.Exec("DELETE FROM attempts WHERE uid = ?", uid[:])
	return bytes, err
}

// unlist takes jobs out of the index. If some are among the recent ones, those go into their lists
// first.
func (w *Writer) unlist(s *state, gone []recent) error {
	if len(gone) == 0 {
		return nil
	}
	if s.pending > 0 {
		packed, err := w.c.recents()
		if err != nil {
			return err
		}
		isGone, found := map[entry]bool{}, false
		for _, j := range gone {
			isGone[j.entry] = true
		}
		err = w.c.eachRecent(packed, func(e entry, _ []byte) { found = found || isGone[e] })
		if err != nil {
			return err
		}
		if found {
			if err := w.c.fold(s); err != nil {
				return err
			}
		}
	}
	return w.c.removeAll(gone)
}
