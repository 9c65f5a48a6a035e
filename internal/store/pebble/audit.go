package pebble

import (
	"bytes"
	"errors"
	"io"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/wal"
)

// audit looks for missing batches in the middle of the store. Pebble makes its state from the
// tables that the manifest names and from all the logs that it finds. It notices neither a missing
// log nor a manifest that lost its end. Such a manifest no longer names the tables that replaced
// removed logs. Therefore the counts in the logs must continue without a gap from the count in the
// tables.
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
			return p.missingMiddle(p.faultyFile(a.damagedLog(), errGap), a.good, a.next)
		}
	}
	if a.good < last.commits {
		return p.missingMiddle(p.likelyCut(), a.good, last.commits+1)
	}
	return nil
}

var errGap = errors.New("batches are gone")

// flushedCommits returns the count of the last batch in a table; 0 if no table has one.
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

// auditor reads the logs, oldest first, and follows the counts of their batches.
type auditor struct {
	good     uint64 // all batches up to this count are there
	next     uint64 // the first count after a gap; 0 if there is no gap
	file     string // the log being read
	goodFile string // the log that holds the batch good; empty if a table holds it
}

// damagedLog returns the log that lost batches: the log that ended too early or, failing that, the
// first log that is there.
func (a *auditor) damagedLog() string {
	if a.goodFile != "" {
		return a.goodFile
	}
	return a.file
}

// read reads one log to its end or to the first unreadable record. Batches behind that are noticed
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
			break // the end, or damage that Pebble has judged: it refuses all but a torn end
		}
		a.see(record.Bytes())
	}
	return log.Close()
}

// see records the count of one batch. The store's own record is the first operation of the batch,
// if there is one.
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
