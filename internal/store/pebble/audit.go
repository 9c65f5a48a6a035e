package pebble

import (
	"bytes"
	"errors"
	"io"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/wal"
)

// audit looks for batches that are gone in the middle. Pebble makes its state from the tables that
// the manifest names and all the logs it finds; it does not notice that a log is gone, nor that the
// manifest lost its end and with it the tables that took the place of removed logs. So the counts
// in the logs must go on without a gap from the count in the tables to the last.
func (p place) audit(db *lsm.DB, last meta) error {
	inTables, err := flushedCommits(db)
	if err != nil {
		return err
	}
	logs, err := wal.Scan(wal.Dir{FS: p.fs, Dirname: p.dir})
	if err != nil {
		return err
	}
	a := auditor{good: inTables}
	for _, log := range logs {
		_, a.file = log.SegmentLocation(0)
		if err := a.read(log.OpenForRead()); err != nil {
			return err
		}
		if a.next != 0 {
			return p.hollow(p.blame(a.culprit(), errGap), a.good, a.next)
		}
	}
	if a.good < last.commits {
		return p.hollow(p.suspect(), a.good, last.commits+1)
	}
	return nil
}

var errGap = errors.New("batches are gone")

// flushedCommits returns the count of the last batch that is in a table, 0 if none is.
func flushedCommits(db *lsm.DB) (commits uint64, err error) {
	iter, err := db.NewIter(&lsm.IterOptions{OnlyReadGuaranteedDurable: true, UpperBound: []byte{prefixMeta + 1}})
	if err != nil {
		return 0, err
	}
	if iter.First() {
		var m meta
		var value []byte
		if value, err = iter.ValueAndErr(); err == nil {
			m, err = decodeMeta(value)
		}
		commits = m.commits
	}
	return commits, errors.Join(err, iter.Close())
}

// auditor goes through the logs, oldest first.
type auditor struct {
	good     uint64 // all batches up to this count are there
	next     uint64 // the first count after a gap, 0 if there is none
	file     string // the log being read
	goodFile string // the log that good was in, empty if it was in a table
}

// culprit returns the log that lost batches: the one that ended too early, else the first one that
// is there.
func (a *auditor) culprit() string {
	if a.goodFile != "" {
		return a.goodFile
	}
	return a.file
}

// read goes through one log to its end or to where it cannot be read. What is behind that is missed
// by the next log or the witness.
func (a *auditor) read(log wal.Reader) error {
	var record bytes.Buffer
	for a.next == 0 {
		r, _, err := log.NextRecord()
		if err == nil {
			record.Reset()
			_, err = io.Copy(&record, r)
		}
		if err != nil {
			break // the end, or damage that Pebble has judged by now: it refuses what is not a torn end
		}
		a.see(record.Bytes())
	}
	return log.Close()
}

// see takes note of one batch. Its first operation is the store's own record, if it has that.
func (a *auditor) see(batch []byte) {
	if len(batch) < batchrepr.HeaderLen {
		return
	}
	reader := batchrepr.Read(batch)
	_, key, value, ok, err := reader.Next()
	if err != nil || !ok || !bytes.Equal(key, metaKey) {
		return
	}
	m, err := decodeMeta(value)
	switch {
	case err != nil:
	case m.commits == a.good+1:
		a.good, a.goodFile = m.commits, a.file
	case m.commits > a.good+1:
		a.next = m.commits
	}
}
