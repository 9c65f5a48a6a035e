package sqlite

import (
	"database/sql/driver"

	"github.com/google/uuid"

	"github.com/plimsoll-dev/plimsoll/internal/archive"
	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

// kind says what the file is. Its number is in the file's header, so that another database is not
// taken for an archive.
var kind = sqlitefile.Kind{
	Noun: "archive", Maker: "the coordinator makes it when it leads", Application: 0x506c6d61, Format: 1,
	Schema: schema,
	Begin: func(c *sqlitefile.Conn) error {
		_, err := c.Exec("INSERT INTO state VALUES (1, ?, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)", uuid.NewString())
		return err //nolint:wrapcheck // it says what was done
	},
}

// conn is a connection to the file, for one goroutine at a time.
type conn struct {
	*sqlitefile.Conn

	sizes sizes
}

// sizes are the bounds that decide how much work is done at once.
type sizes struct {
	fold   int64 // recent jobs at which their words go into the lists
	block  int   // entries of a full block of a list
	work   int   // blocks, and rows that do not fit, for one answer
	gather int   // jobs that are put into an order in memory
	trim   int64 // bytes of jobs after which a Trim chooses no more: their pages are freed in one transaction
	uids   int64 // of deleted jobs that are remembered; 1,000,000 take 40 MiB in the file
}

// usual has the sizes outside of tests. A block takes less than a quarter of a page: SQLite gives a
// larger row of the list further pages.
var usual = sizes{
	fold: 16384, block: 160, work: 1000, gather: 1000, trim: 64 << 20, uids: 1_000_000,
}

// schema is described in DESIGN.md.
const schema = `
CREATE TABLE state (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  id TEXT NOT NULL, epoch INTEGER NOT NULL, generation INTEGER NOT NULL, sequence INTEGER NOT NULL,
  next INTEGER NOT NULL, jobs INTEGER NOT NULL, tasks INTEGER NOT NULL, bytes INTEGER NOT NULL,
  pending INTEGER NOT NULL, pending_bytes INTEGER NOT NULL, deleted INTEGER NOT NULL,
  longest INTEGER NOT NULL, before INTEGER NOT NULL, early INTEGER NOT NULL
);
CREATE TABLE job (
  n INTEGER PRIMARY KEY, uid BLOB NOT NULL, id TEXT NOT NULL, words INTEGER NOT NULL,
  head BLOB NOT NULL, spec BLOB, status BLOB, tasks BLOB
);
CREATE UNIQUE INDEX job_uid ON job(uid);
CREATE INDEX job_id ON job(id, uid, words);
CREATE TABLE chunk (
  n INTEGER PRIMARY KEY, results INTEGER NOT NULL, least TEXT NOT NULL, greatest TEXT NOT NULL, tasks BLOB NOT NULL
);
CREATE TABLE attempts (
  uid BLOB NOT NULL, task TEXT NOT NULL, first INTEGER NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (uid, task, first)
) WITHOUT ROWID;
CREATE TABLE recent (n INTEGER PRIMARY KEY, jobs BLOB NOT NULL);
CREATE TABLE list (
  word INTEGER NOT NULL, sort INTEGER NOT NULL, first BLOB NOT NULL, entries BLOB NOT NULL,
  PRIMARY KEY (word, sort, first)
) WITHOUT ROWID;
CREATE TABLE deleted (uid BLOB PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX deleted_at ON deleted(at);
`

// state is the one row that each change reads and writes.
type state struct {
	id                                                    string
	epoch, generation, sequence, next                     int64
	jobs, tasks, bytes, pending, pendingBytes, tombstones int64

	longest int64 // time between the submit and the end of any job up to now, in nanoseconds
	before  int64 // the same for a job whose clock says that it ended before its submit

	early int64 // of bytes: attempts of jobs that are not there
}

func (c *conn) readState() (*state, error) {
	row, err := c.First(`SELECT id, epoch, generation, sequence, next, jobs, tasks, bytes, pending, pending_bytes,
		deleted, longest, before, early FROM state`)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, c.Damaged("the row with its state is missing")
	}
	s := &state{}
	s.id, _ = row[0].(string)
	for i, field := range s.numbers() {
		n, ok := row[i+1].(int64)
		if !ok || n < 0 {
			return nil, c.Damaged("column %d of its state is %v", i+1, row[i+1])
		}
		*field = n
	}
	return s, nil
}

// numbers returns the fields behind the id, in the order of the columns.
func (s *state) numbers() []*int64 {
	return []*int64{
		&s.epoch, &s.generation, &s.sequence, &s.next, &s.jobs, &s.tasks, &s.bytes, &s.pending, &s.pendingBytes,
		&s.tombstones, &s.longest, &s.before, &s.early,
	}
}

func (c *conn) writeState(s *state) error {
	var values []driver.Value
	for _, field := range s.numbers() {
		values = append(values, max(*field, 0))
	}
	_, err := c.Exec(`UPDATE state SET epoch = ?, generation = ?, sequence = ?, next = ?, jobs = ?, tasks = ?,
		bytes = ?, pending = ?, pending_bytes = ?, deleted = ?, longest = ?, before = ?, early = ?`, values...)
	return err
}

// mark returns the mark of a state. oldest is the end of the job that ended first.
func (s *state) mark(oldest int64) archive.Mark {
	return archive.Mark{
		ID: s.id, Epoch: uint64(s.epoch), Sequence: uint64(s.sequence), Jobs: s.jobs, Tasks: s.tasks,
		Bytes: s.bytes, Oldest: oldest,
	}
}
