package fold

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/history"
)

// batch holds the results of a call of Apply while it goes on.
type batch struct {
	number     uint64 // of calls; marks in objects say in which one they were listed
	spent      int    // bytes of all below, as history.Batch.Bytes counts them
	objects    []history.Object
	jobs       []*job // that began or changed
	rows       []row
	byHour     map[hourOf]int // rows that are not the last one of their job
	others     map[history.Object]bool
	event      *plimsoll.Event // that is applied
	unexpected int
	example    string
}

// row is a rollup that is being made. Its job gives the group.
type row struct {
	job  *job
	hour int64
	sums history.Sums // without Used
	used []used
}

type used struct {
	name   string
	amount history.Amount
}

type hourOf struct {
	life, hour int64
}

func (f *Fold) beginBatch() {
	f.batch = batch{number: f.batch.number + 1}
}

// endBatch returns what the call has made.
func (f *Fold) endBatch(taken int) Result {
	b := &f.batch
	r := Result{Taken: taken, Objects: b.objects, Unexpected: b.unexpected, Example: b.example}
	if len(b.jobs) > 0 {
		r.Jobs = make([]history.Job, len(b.jobs))
	}
	for i, j := range b.jobs {
		r.Jobs[i] = j.Job
	}
	if len(b.rows) > 0 {
		r.Rollups = make([]history.Rollup, len(b.rows))
	}
	for i := range b.rows {
		row := &b.rows[i]
		row.sums.Used = make(map[string]history.Amount, len(row.used))
		for _, u := range row.used {
			row.sums.Used[u.name] = u.amount
		}
		r.Rollups[i] = history.Rollup{Hour: row.hour, Group: row.job.group(), Sums: row.sums}
	}
	f.batch = batch{number: b.number}
	return r
}

// tellJob lists a job that began or changed.
func (f *Fold) tellJob(j *job) {
	if j.told == f.batch.number {
		return
	}
	j.told, j.owed = f.batch.number, false
	f.batch.jobs = append(f.batch.jobs, j)
	f.batch.spent += j.Bytes()
}

// payJobs lists jobs that earlier calls had no room for.
func (f *Fold) payJobs() {
	n := 0
	for ; n < len(f.owedJobs) && f.batch.spent < MaxResultBytes/4; n++ {
		if f.owedJobs[n].owed {
			f.tellJob(f.owedJobs[n])
		}
	}
	if f.owedJobs = f.owedJobs[n:]; len(f.owedJobs) == 0 {
		f.owedJobs = nil
	}
}

// owe lists a job in one of the next calls.
func (f *Fold) owe(j *job) {
	if !j.owed {
		j.owed = true
		f.owedJobs = append(f.owedJobs, j)
	}
}

// index lists the objects of an event. A job has the life that it has now.
func (f *Fold) index(e *plimsoll.Event) {
	history.Objects(e, func(o history.Object) {
		mark := (*uint64)(nil)
		switch o.Kind {
		case history.KindJob:
			if j := f.jobs[o.ID]; j != nil && (!refuses(e) || j.refusable()) {
				o.ID, o.Life, mark = j.ID, j.Life, &j.listed
			}
		case history.KindNode:
			if n := f.nodes[o.ID]; n != nil {
				o.ID, mark = n.id, &n.listed
			}
		case history.KindQueue:
			if q := f.queues[o.ID]; q != nil {
				o.ID, mark = q.path, &q.listed
			}
		}
		f.list(o, mark)
	})
}

// list lists an object once. mark is nil for one that is not known.
func (f *Fold) list(o history.Object, mark *uint64) {
	b := &f.batch
	switch {
	case mark != nil && *mark == b.number, b.others[o]: // perhaps before it was known
		return
	case mark != nil:
		*mark = b.number
	case b.others == nil:
		b.others = map[history.Object]bool{o: true}
	default:
		b.others[o] = true
	}
	b.objects = append(b.objects, o)
	b.spent += len(o.ID) + 16
}

// row returns the rollup of a job in the hour of an instant. It is made if there is none.
func (f *Fold) row(j *job, at int64) *row {
	b, hour := &f.batch, at/nanosPerHour*secondsPerHour
	known := j.rowOf == b.number
	if known && b.rows[j.row].hour == hour {
		return &b.rows[j.row]
	}
	i, found := 0, false
	if known {
		i, found = b.byHour[hourOf{j.Life, hour}]
		if b.byHour == nil {
			b.byHour = map[hourOf]int{}
		}
		b.byHour[hourOf{j.Life, b.rows[j.row].hour}] = j.row
	}
	if !found {
		i = len(b.rows)
		b.rows = append(b.rows, row{job: j, hour: hour})
		b.spent += j.rowBytes()
	}
	j.rowOf, j.row = b.number, i
	return &b.rows[i]
}

// hasRow reports whether row makes none.
func (f *Fold) hasRow(j *job, at int64) bool {
	if j.rowOf != f.batch.number {
		return false
	}
	hour := at / nanosPerHour * secondsPerHour
	_, found := f.batch.byHour[hourOf{j.Life, hour}]
	return found || f.batch.rows[j.row].hour == hour
}

func (r *row) add(name string, a history.Amount) (bytes int) {
	for i := range r.used {
		if r.used[i].name == name {
			r.used[i].amount = r.used[i].amount.Plus(a)
			return 0
		}
	}
	r.used = append(r.used, used{name, a})
	return len(name) + 20
}
