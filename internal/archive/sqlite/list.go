package sqlite

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/archive"
)

// The lists of the index, read. A list gives its entries in one direction, from any entry on.

// direction is an order up or down.
type direction struct {
	order order
	down  bool
}

func (d direction) compare(a, b entry) int {
	if d.down {
		a, b = b, a
	}
	return d.order.compare(a, b)
}

// start returns an entry that no other comes before.
func (d direction) start() entry {
	if d.down {
		return entry{math.MaxUint64, math.MaxUint64, math.MaxUint64}
	}
	return entry{}
}

// before returns the entry that comes right before e, whether there is one or not: a list goes on
// with e behind it.
func (d direction) before(e entry) entry {
	step := uint64(math.MaxUint64) // minus one
	limit := step
	if d.down {
		step, limit = 1, 0
	}
	for _, digit := range []*uint64{&e.revision, &e.submitted, &e.finished} {
		*digit += step
		if *digit != limit {
			break
		}
	}
	return e
}

// list gives entries in the order of a direction.
type list interface {
	// from returns the first entry at or behind e; with behind, only behind. ok is false at the
	// end. With errBudget it returns an entry that no entry of the list comes before, from e on.
	from(e entry, behind bool) (found entry, ok bool, err error)
	// density returns about how many entries there are to a unit of the order's time, near those
	// that were read last.
	density() float64
}

// budget is the work that may be done for one answer. It stands for time: a block or a row takes
// some ten microseconds.
type budget struct {
	ctx  context.Context //nolint:containedctx // it lives as long as one answer
	left int
}

// take takes work from the budget. It fails with errBudget when there is none left.
func (b *budget) take(work int) error {
	if b.left <= 0 {
		return errBudget
	}
	b.left -= work
	return kind.Ended(b.ctx)
}

// errBudget ends a walk whose budget is used up.
var errBudget = errors.New("the work for one answer is done")

// blocks is a list as it stands in the file. It holds one block.
type blocks struct {
	c      *conn
	word   word
	dir    direction
	span   span
	budget *budget

	loaded      bool
	first, last entry   // of the block, in the order of the direction
	size        int     // entries of the block
	entries     []entry // of the block, within the span, in the order of the direction
	buffer      []entry
}

// span has the times within which the jobs of a query ended: from the first on, before the second.
type span struct{ from, to uint64 }

func (s span) has(e entry) bool { return e.finished >= s.from && e.finished < s.to }

func (l *blocks) from(e entry, behind bool) (entry, bool, error) {
	for {
		if l.loaded && l.dir.compare(l.first, e) <= 0 && l.dir.compare(e, l.last) <= 0 {
			if found, ok := seek(l.dir, l.entries, e, behind); ok {
				return found, true, nil
			}
			e, behind = l.last, true
		}
		if ok, err := l.load(e, behind); !ok || err != nil {
			return e, false, err
		}
		if found, ok := seek(l.dir, l.entries, e, behind); ok {
			return found, true, nil
		}
		e, behind = l.last, true // the next block: between the two there is nothing
	}
}

func (l *blocks) density() float64 {
	if !l.loaded {
		return 0
	}
	return float64(l.size) / (math.Abs(float64(l.dir.order.time(l.last))-float64(l.dir.order.time(l.first))) + 1)
}

// load reads the first block that may hold an entry from e on.
func (l *blocks) load(e entry, behind bool) (bool, error) {
	query, from := selectAtOrBefore, e
	switch {
	case l.dir.down && behind:
		query = selectBefore
	case !l.dir.down && l.loaded && behind && l.dir.compare(e, l.last) == 0: // the next one
		query, from = selectAfter, l.first
	}
	for {
		if err := l.budget.take(1); err != nil {
			return false, err
		}
		block, err := l.c.readBlock(l.dir.order, l.buffer, query, int64(l.word), int64(l.dir.order),
			l.dir.order.key(from))
		if err != nil {
			return false, err
		}
		if len(block) > 0 {
			l.hold(block)
			return true, nil
		}
		if l.dir.down || query == selectAfter {
			return false, nil
		}
		query = selectAfter // nothing before e
	}
}

func (l *blocks) hold(block []entry) {
	if l.dir.down {
		slices.Reverse(block)
	}
	l.loaded, l.first, l.last, l.size = true, block[0], block[len(block)-1], len(block)
	l.buffer = block
	l.entries = slices.DeleteFunc(block, func(e entry) bool { return !l.span.has(e) })
}

// seek finds the first entry from e on in a sorted slice.
func seek(d direction, entries []entry, e entry, behind bool) (entry, bool) {
	i, found := slices.BinarySearchFunc(entries, e, d.compare)
	if found && behind {
		i++
	}
	if i >= len(entries) {
		return entry{}, false
	}
	return entries[i], true
}

// some is a list in memory.
type some struct {
	dir     direction
	entries []entry
}

func (l *some) from(e entry, behind bool) (entry, bool, error) {
	found, ok := seek(l.dir, l.entries, e, behind)
	return found, ok, nil
}

func (l *some) density() float64 { return 0 } // its entries are in memory: asking it costs little

// union gives the entries of any of its lists, each once.
type union struct {
	dir    direction
	lists  []list
	heads  []head
	budget *budget
}

// head is the last answer of a list of a union.
type head struct {
	asked  entry // for which it was asked
	behind bool
	valid  bool
	entry  entry
	ok     bool
	cut    bool // the budget ended the search: entry is one that no other of the list comes before
}

func (l *union) from(e entry, behind bool) (best entry, ok bool, err error) {
	cut := false
	for i := range l.lists {
		h := &l.heads[i]
		if !h.still(l.dir, e, behind) {
			if err := l.ask(i, e, behind); err != nil {
				return e, false, err
			}
		}
		if !h.ok {
			continue
		}
		if c := l.dir.compare(h.entry, best); !ok || c < 0 || c == 0 && h.cut {
			best, ok, cut = h.entry, true, h.cut
		}
	}
	if cut {
		return best, false, errBudget
	}
	return best, ok, nil
}

// ask asks one of the lists. It may use its part of the budget alone: the next answer can only
// begin behind e if each list has come further.
func (l *union) ask(i int, e entry, behind bool) error {
	from, past := e, behind
	if h := &l.heads[i]; h.cut && l.dir.compare(h.asked, e) <= 0 && l.dir.compare(e, h.entry) < 0 {
		from, past = h.entry, false
	}
	kept := l.budget.left - l.budget.left/(len(l.lists)-i)
	l.budget.left -= kept
	found, ok, err := l.lists[i].from(from, past)
	l.budget.left += kept
	cut := errors.Is(err, errBudget)
	if err != nil && !cut {
		return err
	}
	l.heads[i] = head{asked: e, behind: behind, valid: !cut, entry: found, ok: ok || cut, cut: cut}
	return nil
}

func (l *union) density() (sum float64) {
	for _, part := range l.lists {
		sum += part.density()
	}
	return sum
}

// still reports whether the list would answer the same from e on.
func (h *head) still(d direction, e entry, behind bool) bool {
	if !h.valid || d.compare(h.asked, e) > 0 || d.compare(h.asked, e) == 0 && h.behind && !behind {
		return false
	}
	if !h.ok {
		return true
	}
	c := d.compare(h.entry, e)
	return c > 0 || c == 0 && !behind
}

// all gives the entries that are in every one of its lists. The sparse lists are asked first: a
// dense one, in which each question costs a block, only where the others agree.
type all struct {
	dir    direction
	lists  []list
	sorted bool // by density
}

func newAll(dir direction, lists []list) list {
	if len(lists) == 1 {
		return lists[0]
	}
	return &all{dir: dir, lists: lists}
}

func (l *all) from(e entry, behind bool) (entry, bool, error) {
	for i := 0; i < len(l.lists); i++ {
		found, ok, err := l.lists[i].from(e, behind)
		if errors.Is(err, errBudget) && l.dir.compare(found, e) > 0 {
			e = found // no entry of this list comes before it
		}
		if !ok || err != nil {
			return e, false, err
		}
		if l.sorted && i > 0 && found != e {
			i = -1 // the first list is asked again, from there on
		}
		e, behind = found, false
		if !l.sorted && i == len(l.lists)-1 { // each has a block now
			slices.SortStableFunc(l.lists, func(a, b list) int { return cmp.Compare(a.density(), b.density()) })
			l.sorted, i = true, -1
		}
	}
	return e, true, nil
}

func (l *all) density() float64 { return l.lists[0].density() }

// index makes lists of one moment of the file.
type index struct {
	c       *conn
	budget  *budget
	span    span     // of the entries of its lists
	recents [][]byte // packed
}

func (c *conn) index(b *budget) (*index, error) {
	recents, err := c.recents()
	return &index{c: c, budget: b, span: span{to: math.MaxUint64}, recents: recents}, err
}

// of returns the list of the jobs with any of some words.
func (x *index) of(d direction, words ...word) (list, error) {
	lists := make([]list, 0, len(words)+1)
	for _, w := range words {
		lists = append(lists, &blocks{c: x.c, word: w, dir: d, span: x.span, budget: x.budget})
	}
	recent := &some{dir: d}
	err := x.c.eachRecent(x.recents, func(e entry, packed []byte) {
		if !x.span.has(e) {
			return
		}
		for i := range len(packed) / wordBytes {
			if slices.Contains(words, wordAt(packed, i)) {
				recent.entries = append(recent.entries, e)
				break
			}
		}
	})
	slices.SortFunc(recent.entries, d.compare)
	return &union{d, append(lists, recent), make([]head, len(lists)+1), x.budget}, err
}

// criteriaOf returns a set of words for each criterion of a query that has words: a job that meets
// it has one of them. taskResults are results of which a job must have one among its tasks.
func criteriaOf(q *archive.JobQuery, taskResults []plimsoll.TaskResult) (criteria [][]word) {
	if len(taskResults) > 0 && !slices.Contains(taskResults, plimsoll.ResultSucceeded) {
		var words []word
		for _, r := range taskResults {
			words = append(words, taskResultWord(r))
		}
		criteria = append(criteria, words)
	}
	if q.Owner != "" {
		criteria = append(criteria, []word{ownerWord(q.Owner)})
	}
	if hasQueueWord(q.Queue) {
		criteria = append(criteria, []word{queueWord(q.Queue)})
	}
	for _, l := range q.Labels {
		criteria = append(criteria, []word{labelWord(l)})
	}
	if q.Failed {
		criteria = append(criteria, []word{wordFailed})
	}
	if words := stateWords(q.States); len(words) > 0 {
		criteria = append(criteria, words)
	}
	if words := resultWords(q.Results); len(words) > 0 {
		criteria = append(criteria, words)
	}
	return criteria
}

// matching returns a list with all jobs that meet the criteria, and perhaps others.
func (x *index) matching(criteria [][]word, d direction) (list, error) {
	if len(criteria) == 0 {
		criteria = [][]word{{wordGood, wordBad}}
	}
	lists := make([]list, len(criteria))
	for i, words := range criteria {
		var err error
		if lists[i], err = x.of(d, words...); err != nil {
			return nil, err
		}
	}
	return newAll(d, lists), nil
}

func stateWords(states []plimsoll.JobState) (words []word) {
	for _, s := range states {
		words = append(words, stateWord(s))
		if s == plimsoll.JobCompleted {
			words = append(words, wordGood)
		}
	}
	return words
}

func resultWords(results []plimsoll.TaskResult) (words []word) {
	for _, r := range results {
		words = append(words, resultWord(r))
		if r == plimsoll.ResultSucceeded {
			words = append(words, wordGood)
		}
	}
	return words
}

// oldest returns the end of the job that ended first, or 0.
func (c *conn) oldest() (int64, error) {
	x, err := c.index(&budget{context.Background(), c.sizes.work})
	if err != nil {
		return 0, err
	}
	d := direction{order: byFinish}
	l, err := x.of(d, wordGood, wordBad)
	if err != nil {
		return 0, err
	}
	e, ok, err := l.from(d.start(), false)
	if !ok || err != nil {
		return 0, err
	}
	return int64(e.finished), nil
}
