// Package sqlitefile keeps a database in one SQLite file, which one process changes and any number
// read.
//
//	var kind = sqlitefile.Kind{Noun: "archive", Schema: …}
//	owner, err := kind.Own(ctx, "jobs.db", 16<<20)
//	err = owner.Change(ctx, func() error { … owner.Exec(…) … })
//
//	pool := kind.Read("jobs.db") // in any process of the machine
//	err = pool.View(ctx, func(ctx context.Context, v sqlitefile.View) error { … v.Exec … })
//
// It owns the files: the database, its -wal and -shm, and the lock in the -gate beside it. It knows
// no tables, but those that a Kind makes. It starts no goroutine.
//
// Guarantees: a change is on the disk when it returns, whole or not at all. A View sees one moment
// of the file that has the name then, also if that was replaced. Views do not keep the owner from
// emptying the log. With Kind.PageSums damaged bytes of the file are an error and never a wrong
// answer. Errors of SQLite have codes of plimsoll, and remedies.
//
// Cost: a change costs its pages and one fsync. Opening costs the log, which has at most 32 MiB
// after a change, and 256 MiB if a reader does not end.
package sqlitefile

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
)

// Kind has the name, the number and the tables of the files for one purpose.
type Kind struct {
	Noun        string // such as "archive", in errors
	Maker       string // who makes a file that is not there, in errors: "the coordinator makes it when it leads"
	Application int64  // in the file's header, so that a file of another kind is refused
	Format      int64  // of the tables and of the pages; a file with another one is refused
	Schema      string // statements that make the tables
	// PageSums gives each page a checksum. A damaged one is an error where it is read, also in an
	// index. Other programs can read such a file; they must not write it.
	PageSums bool
	// Begin writes the first rows of a new file.
	Begin func(c *Conn) error
}

// article returns the noun with its article.
func (k Kind) article() string {
	if strings.HasPrefix(k.Noun, "a") {
		return "an " + k.Noun
	}
	return "a " + k.Noun
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ChecksumBytes is how much longer Sealed makes its data.
const ChecksumBytes = 4

// Sealed appends a checksum.
func Sealed(data []byte) []byte {
	return binary.BigEndian.AppendUint32(data, crc32.Checksum(data, castagnoli))
}

// Unsealed takes the checksum of Sealed off and says whether it is right.
func Unsealed(data []byte) (content []byte, ok bool) {
	if len(data) < ChecksumBytes {
		return nil, false
	}
	content = data[:len(data)-ChecksumBytes]
	return content, binary.BigEndian.Uint32(data[len(content):]) == crc32.Checksum(content, castagnoli)
}
