// Package sqlite keeps the archive in one SQLite file.
//
// A Writer owns the file; Readers in the same and in other processes see each Write as soon as it
// has returned, and never a part of one. A Writer holds no goroutine. A Reader holds up to four
// connections.
//
//	w, err := sqlite.OpenWriter(ctx, "archive/jobs.db")
//	mark, err := w.Fence(ctx, epoch)
//
//	r := sqlite.OpenReader("archive/jobs.db") // in any process of the machine
//	job, err := r.Job(ctx, "wordcount", plimsoll.UID{})
//
// Guarantees: those of package archive. A commit is on the disk when it returns. Each row carries
// a checksum, so that a damaged one is told from a good one; the others are read on.
//
// Cost: a Write costs its bytes and one fsync. A page costs its jobs and the blocks of its lists
// that lie between them, whatever the number of jobs in the archive; and at most 1,000 of both
// beyond the jobs that it returns. Opening costs the log, which has at most 32 MiB after a Write.
// Memory: 16 MiB of pages for a Writer, 4 MiB for each of a Reader's connections.
//
// DESIGN.md, in the directory above, has the tables, the reasons and the rejected ways.
package sqlite
