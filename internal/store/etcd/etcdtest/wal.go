package etcdtest

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
)

// Tear is a way in which the last write to a log is left in part.
type Tear int

// The ways.
const (
	Truncated  Tear = iota // the file ends in the middle of the last record
	ZeroFilled             // the file has its length, but zeros from a sector of a late record on
	NumTears
)

// sector is the unit in which disks write.
const sector = 512

// LogBytes returns the length of the log of a member without the space for more.
func (m *Member) LogBytes() int {
	m.t.Helper()
	_, content := m.readLog()
	records := walRecords(content)
	if len(records) == 0 {
		return 0
	}
	return records[len(records)-1].end
}

func (m *Member) readLog() (file string, content []byte) {
	m.t.Helper()
	files, err := filepath.Glob(filepath.Join(m.dir, "member", "wal", "*.wal"))
	if err != nil || len(files) == 0 {
		m.t.Fatalf("etcd has no log: %v", err)
	}
	file = slices.Max(files)
	if content, err = os.ReadFile(file); err != nil {
		m.t.Fatal(err)
	}
	return file, content
}

// TearLog leaves the last write to the log of a member in part. The member must not run. It may
// have told others of a record once that is durable, so only records behind so many bytes are torn.
func (m *Member) TearLog(durable int, how Tear) {
	m.t.Helper()
	file, content := m.readLog()
	size := 0
	for _, r := range walRecords(content) {
		boundary := (r.at/sector + 1) * sector
		switch {
		case r.at < durable:
		case how == Truncated:
			size = r.at + (r.end-r.at)/2
		case r.at+walHeader < boundary && boundary+walHeader < r.end:
			size = boundary
		}
	}
	if size == 0 {
		m.t.Fatalf("no record behind byte %d of the log can be torn", durable)
	}
	if err := os.Truncate(file, int64(size)); err != nil {
		m.t.Fatal(err)
	}
	if how == ZeroFilled {
		if err := os.Truncate(file, int64(len(content))); err != nil {
			m.t.Fatal(err)
		}
	}
}

// walRecord is the place of a record in a file.
type walRecord struct{ at, end int }

const walHeader = 8

// walRecords finds the records of a file of etcd's log. Before each is a number, whose lower 56
// bits are its size. If the upper 8 are negative, they have the number of bytes that fill it up to
// a multiple of 8. Behind the last are zeros.
func walRecords(content []byte) (all []walRecord) {
	for at := 0; at+walHeader <= len(content); {
		header := binary.LittleEndian.Uint64(content[at:])
		if header == 0 {
			break
		}
		size := int(header & (1<<56 - 1))
		if header>>63 == 1 {
			size += int(header >> 56 & 7)
		}
		all = append(all, walRecord{at, at + walHeader + size})
		at += walHeader + size
	}
	return all
}
