package sqlite

import (
	"encoding/binary"
	"os"
	"strings"

	"github.com/google/uuid"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

// schema has the tables. Columns repeat what a sealed value has where an index needs it.
const schema = `
CREATE TABLE state (
  one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL
);
CREATE TABLE chunk (n INTEGER PRIMARY KEY, peak INTEGER NOT NULL, head BLOB NOT NULL, data BLOB NOT NULL);
CREATE INDEX chunk_peak ON chunk(peak);
CREATE TABLE event (object INTEGER NOT NULL, chunk INTEGER NOT NULL, PRIMARY KEY (object, chunk)) WITHOUT ROWID;
CREATE TABLE name (n INTEGER PRIMARY KEY, kind INTEGER NOT NULL, id TEXT NOT NULL);
CREATE UNIQUE INDEX name_id ON name(id, kind);
CREATE TABLE job (
  life INTEGER PRIMARY KEY, id TEXT NOT NULL, owner TEXT NOT NULL, queue TEXT NOT NULL, ended INTEGER NOT NULL,
  value BLOB NOT NULL
);
CREATE INDEX job_id ON job(id, life);
CREATE INDEX job_owner ON job(owner, life);
CREATE INDEX job_queue ON job(queue, life);
CREATE INDEX job_ended ON job(ended, life) WHERE ended > 0;
CREATE INDEX job_running ON job(life) WHERE ended = 0;
CREATE TABLE usage_owner (
  hour INTEGER NOT NULL, owner TEXT NOT NULL, queue TEXT NOT NULL, sums BLOB NOT NULL,
  PRIMARY KEY (hour, owner, queue)
) WITHOUT ROWID;
CREATE TABLE usage_labels (
  hour INTEGER NOT NULL, owner TEXT NOT NULL, queue TEXT NOT NULL, labels TEXT NOT NULL, sums BLOB NOT NULL,
  PRIMARY KEY (hour, owner, queue, labels)
) WITHOUT ROWID;
CREATE TABLE usage_job (
  hour INTEGER NOT NULL, life INTEGER NOT NULL, sums BLOB NOT NULL, PRIMARY KEY (hour, life)
) WITHOUT ROWID;
CREATE TABLE fold (
  chunk INTEGER PRIMARY KEY, time INTEGER NOT NULL, total INTEGER NOT NULL, gap INTEGER NOT NULL,
  bytes INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE INDEX fold_time ON fold(time, chunk, total, gap, bytes);
CREATE TABLE gap (n INTEGER PRIMARY KEY, value BLOB NOT NULL);
`

// kind says what the file is. Its number is in the file's header, so that another database is not
// taken for a history. Pages of format 1 had no checksums, and its files no names.
var kind = sqlitefile.Kind{
	Noun: "history", Maker: "the historian makes it", Application: 0x506c6d68, Format: 2, Schema: schema,
	PageSums: true,
	Begin: func(c *sqlitefile.Conn) error {
		id := uuid.NewString()
		_, err := c.Exec("INSERT INTO state VALUES (1, ?, ?, ?)", id, newName(id), (&state{}).encode())
		return err //nolint:wrapcheck // it says what was done
	},
}

// newName returns the name of a new history: that of the host, so that people know it, and a part
// of the file's id, so that no other has it.
func newName(id string) string {
	host, _ := os.Hostname() // without a name of the host there is a usual one
	host, _, _ = strings.Cut(host, ".")
	name := host + "-" + id[:8]
	if plimsoll.ValidateID("name", name) != nil {
		name = "history-" + id[:8]
	}
	return name
}

// conn is a connection to the file, for one goroutine at a time.
type conn struct {
	*sqlitefile.Conn

	packing *packing
	sizes   *sizes
}

// sizes are the bounds that decide how much work is done at once.
type sizes struct {
	timeline int   // events that a page of a timeline unpacks; a chunk counts chunkWork more
	jobs     int   // lives that a page of jobs looks at
	usage    int   // rows that a question about usage reads
	groups   int64 // bytes of its groups
	trim     int   // rows of one table, and chunks, that a Trim removes
	trimmed  int64 // bytes of chunks that it removes
	folds    thinning
}

// usual has the sizes outside of tests.
var usual = sizes{
	timeline: 500_000, jobs: 20_000, usage: 500_000, groups: 64 << 20, trim: 2000, trimmed: 16 << 20,
	folds: thinning{age: 24 * 3600e9, distance: 200_000, count: 4096, bytes: 1 << 30},
}

// state is the one row that each Write reads and writes.
type state struct {
	id string // of the file

	instance string
	next     uint64
	chunks   int64 // number of the last chunk
	total    int64 // events ever
	events   int64 // that are kept
	jobs     int64
	lives    int64 // the highest life up to now
	since    int64 // time of the first event ever
	newest   int64 // time of the last event
	peak     int64 // time of the latest event
	behind   int64 // how far an event's time was behind the latest one before it, at most
	partial  int64 // 1: something was before the first event, or was trimmed

	submitPeak  int64 // time of the latest submit of any life
	submitFirst int64 // time of the earliest one
	// submitBehind is at least the time by which a submit was before that of a lower life.
	submitBehind int64
	longest      int64 // time between the submit and the end of any life, at most
}

// numbers returns the fields behind the instance, in the order in which they are stored.
func (s *state) numbers() []*int64 {
	return []*int64{
		&s.chunks, &s.total, &s.events, &s.jobs, &s.lives, &s.since, &s.newest, &s.peak, &s.behind, &s.partial,
		&s.submitPeak, &s.submitFirst, &s.submitBehind, &s.longest,
	}
}

func (s *state) encode() []byte {
	data := binary.AppendUvarint(appendText(nil, s.instance), s.next)
	for _, field := range s.numbers() {
		data = binary.AppendVarint(data, *field)
	}
	return sqlitefile.Sealed(data)
}

func (c *conn) readState() (*state, error) {
	row, err := c.First("SELECT id, value FROM state")
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was done
	}
	if row == nil {
		return nil, c.Damaged("the row with its state is missing")
	}
	s := &state{}
	s.id, _ = row[0].(string)
	d := open(row[1])
	s.instance, s.next = d.text(), d.number()
	for _, field := range s.numbers() {
		*field = d.signed()
	}
	if !d.whole() {
		return nil, c.Damaged("its state")
	}
	return s, nil
}

func (c *conn) writeState(s *state) error {
	_, err := c.Exec("UPDATE state SET value = ?", s.encode())
	return err //nolint:wrapcheck // it says what was done
}

// used returns the bytes of the file that have content.
func (c *conn) used() (int64, error) {
	var numbers [3]int64
	for i, query := range []string{"PRAGMA page_count", "PRAGMA freelist_count", "PRAGMA page_size"} {
		row, err := c.First(query)
		if err != nil {
			return 0, err //nolint:wrapcheck // it says what was done
		}
		numbers[i], _ = row[0].(int64)
	}
	return (numbers[0] - numbers[1]) * numbers[2], nil
}
