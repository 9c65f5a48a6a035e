// Package sqlite keeps a history in one SQLite file.
//
// A Writer owns the file; Readers in the same and in other processes see each Write as soon as it
// has returned, and never a part of one. Neither holds a goroutine.
//
//	w, err := sqlite.OpenWriter(ctx, "history/events.db")
//	err = w.Write(ctx, &batch)
//
//	r := sqlite.OpenReader("history/events.db") // in any process of the machine
//	object := history.Object{Kind: history.KindJob, ID: "etl"}
//	page, err := r.Timeline(ctx, history.TimelineQuery{Object: object})
//
// Guarantees: those of package history. A commit is on the disk when it returns. All that is read
// carries a checksum: each page of the file, with its indexes (sqlitefile.Kind.PageSums), and each
// value. So damaged bytes are an error with CodeCorrupt and not a wrong answer. Pages that are
// still in the log have SQLite's checksums only, which it compares when the log is opened.
//
// The events of a Write are one row, a chunk as package ring packs it, with zstd over it. Beside it
// are an index from each object to its chunks, a row for each life of a job, and three tables of
// sums: by hour with owner and queue; with the labels too; and by hour and life. Each question
// about usage reads the smallest table that has its facts.
//
// Cost: a Write costs its bytes, some rows for each object, job and sum of its batch, and one
// fsync, whatever the history has already. A page of a timeline costs the chunks that hold events
// of the object. It ends early, with Next set, when it has unpacked 500,000 events. A question
// about usage costs its hours times the owners and queues with use in them, not the jobs of those.
// By label it costs the hours times the sets of labels, and by job the jobs. Beyond 500,000 rows it
// fails with CodeExhausted. A page of jobs costs its jobs and the lives that its filters leave out,
// at most 20,000.
//
// All folds of the last day stay, and older ones at distances of 200,000 events: at most 4,096 of
// them, in 1 GiB and a quarter of the retention's bytes. So At replays at most 200,000 events, or
// those between two folds as they were written. Beyond those bounds the folds that leave the
// shortest distance go first. Retention.Bytes does not bound jobs and sums, which Usage bounds.
// Memory: 32 MiB of pages for a Writer, 4 MiB for each of a Reader's four connections, and
// the answers.
package sqlite
