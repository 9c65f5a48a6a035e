package ring

import (
	"encoding/binary"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/plimsoll-dev/plimsoll"
)

// maxText bounds an id. The longest that the vocabulary allows, a queue path, is about 1 KiB.
const maxText = 4096

// version is the form that is written. Version 1 is still read: it has neither heads nor usual
// shapes.
const (
	version    = 2
	oldVersion = 1
)

// Flags of a shape: the fields that follow it in the record.
const (
	hasObject = 1 << iota
	hasReference
	hasMessage
	hasResources
	hasTime
	hasHead
	numFlags    = iota
	oldNumFlags = numFlags - 1 // of version 1
)

// A family is the kind of object that a text names. Texts of one family often have long common
// prefixes. The family is only a guess that makes chunks small.
//
// The code of a text that is new in the chunk is a family: the text is encoded as a difference to
// the newest text of that family. Higher codes are those of known texts: numFamilies +
// zigzag(index - index of the last text in the same role).
type family uint8

const (
	familyOther family = iota
	familyJob
	familyTask
	familyNode
	familyQueue
	familyMessage
	numFamilies
)

// Texts of heads, which are owners and labels, are of the family of other texts. So are those of an
// event of a user or group: a reader that does not know the type takes them for such texts too.

// numTypes bounds the event types that have a role of their own.
const numTypes = plimsoll.NumEventTypes

// The families follow from the design's table of reference ids.
var (
	objectFamily    = [numTypes]family{familyOther, familyTask, familyJob, familyNode, familyQueue, familyOther}
	referenceFamily = [numTypes]family{familyOther, familyJob, familyTask, familyTask, familyJob, familyOther}
)

// relatedFamily is another family whose newest text may share a longer prefix with a new text than
// its own family does. For example, the id of a task begins with that of its job.
var relatedFamily = [numFamilies]family{
	familyOther: familyJob, familyJob: familyTask, familyTask: familyJob, familyNode: familyNode,
	familyQueue:   familyQueue,
	familyMessage: familyMessage,
}

// usualNames are coded in one byte each. The order is part of the format.
var usualNames = [...]string{plimsoll.CPU, plimsoll.Memory, plimsoll.Disk}

// The first byte of a shape, its kind, is change*8 + type if both are below eight. From usualKind
// on it is the number of a usual shape, which says all but the resources. Otherwise it is rareKind,
// and a byte follows for each.
const (
	usualKind = 64
	rareKind  = 0xff
)

// usual is a shape that nearly every chunk has, with the change, the detail and the flags that
// follow from it.
type usual struct {
	kind   plimsoll.EventType
	change plimsoll.ChangeType
	detail plimsoll.ChangeDetail
	flags  uint64
}

// usualShapes are those of the life of a job and its tasks. The order is part of the format:
// further ones come behind.
var usualShapes = [...]usual{
	{plimsoll.EventApp, plimsoll.ChangeAdd, plimsoll.DetailNone, hasObject | hasHead},
	{plimsoll.EventQueue, plimsoll.ChangeAdd, plimsoll.QueueApp, hasObject | hasReference},
	{plimsoll.EventQueue, plimsoll.ChangeRemove, plimsoll.QueueApp, hasObject | hasReference},
	{plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppNew, hasObject},
	{plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppAccepted, hasObject},
	{plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppStarting, hasObject},
	{plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppRunning, hasObject},
	{plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppCompleting, hasObject},
	{plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppCompleted, hasObject},
	{plimsoll.EventApp, plimsoll.ChangeSet, plimsoll.AppExpired, hasObject},
	{plimsoll.EventApp, plimsoll.ChangeRemove, plimsoll.DetailNone, hasObject},
	{plimsoll.EventApp, plimsoll.ChangeAdd, plimsoll.AppRequest, ofTask},
	{plimsoll.EventApp, plimsoll.ChangeRemove, plimsoll.AppRequest, ofTask},
	{plimsoll.EventNode, plimsoll.ChangeAdd, plimsoll.NodeAlloc, ofTask},
	{plimsoll.EventNode, plimsoll.ChangeRemove, plimsoll.NodeAlloc, ofTask},
	{plimsoll.EventApp, plimsoll.ChangeAdd, plimsoll.AppAlloc, ofTask},
	{plimsoll.EventApp, plimsoll.ChangeRemove, plimsoll.AllocCancel, ofTask},
	{plimsoll.EventApp, plimsoll.ChangeRemove, plimsoll.AllocCancel, ofTask | hasMessage},
}

// ofTask are the flags of the events of a task.
const ofTask = hasObject | hasReference | hasResources

// A role is a position in a record. A text is coded by its distance from the last text in the same
// role.
const (
	roleReference = numTypes + iota // roles before it: the object, one role for each event type
	roleMessage
	roleHead
	numRoles
)

func typeIndex(t plimsoll.EventType) int {
	if int(t) < numTypes {
		return int(t)
	}
	return 0
}

// Encoder packs events into a chunk. The zero value is ready. Its tables are reused for the next
// chunk.
type Encoder struct {
	body         []byte              // packed records of this chunk
	count        uint64              // number of events in body
	first        int64               // time of the first event
	last         int64               // time of the last event
	shapes       map[uint64]uint64   // shape → index in this chunk
	blobs        map[string]uint64   // packed resources → index in this chunk
	index        map[string]uint64   // text → index in this chunk
	texts        []string            // Invariant: texts[index[t]] is t
	roles        [numRoles]uint64    // index of the last text in the role
	newest       [numFamilies]string // newest text of the family in this chunk
	lastRevision uint64              // revision in the uid of the last head
	keys         []string            // sorted keys of the labels that are written

	// recent holds resources of this chunk or an earlier one, so that the same map is packed only
	// once.
	recent      [8]knownResources
	nextRecent  int      // index in recent of the entry that the next unknown map replaces
	chunk       uint64   // number of the chunk; entries of recent with another number are of an earlier chunk
	peak        int      // most texts in one chunk since the maps were made
	smallChunks int      // chunks since then that were much smaller
	sorted      []string // sorted names of the resources that are being learned
	packed      []byte   // packed form of the same resources
}

type knownResources struct {
	names   []string // sorted
	amounts []int64
	blob    string // packed form; empty if not packed yet
	chunk   uint64 // chunk in which index is valid
	index   uint64
}

// Len returns the number of events in the chunk so far.
func (e *Encoder) Len() int { return int(e.count) }

// Append adds an event. A nil or entirely empty event is left out (event design, "Event storage").
func (e *Encoder) Append(ev *plimsoll.Event) {
	if ev == nil || isBlank(ev) {
		return
	}
	if e.index == nil {
		e.makeTables()
	}
	if e.count == 0 {
		e.first, e.last = ev.Time, ev.Time
	}
	e.count++
	flags := e.appendShape(ev)
	if flags&hasTime != 0 {
		e.body = binary.AppendVarint(e.body, ev.Time-e.last)
		e.last = ev.Time
	}
	kind := typeIndex(ev.Type)
	if flags&hasObject != 0 {
		e.appendText(kind, objectFamily[kind], cut(ev.Object, maxText))
	}
	if flags&hasReference != 0 {
		e.appendText(roleReference, referenceFamily[kind], cut(ev.Reference, maxText))
	}
	if flags&hasMessage != 0 {
		e.appendText(roleMessage, familyMessage, cut(ev.Message, plimsoll.MaxEventMessage))
	}
	if flags&hasHead != 0 {
		e.appendHead(ev)
	}
}

// appendHead writes what an event tells of a job. The job was submitted at about the time of the
// event, and the jobs of a turn in one batch.
func (e *Encoder) appendHead(ev *plimsoll.Event) {
	h := ev.Head
	e.body = binary.AppendVarint(e.body, h.UID.Submitted()-ev.Time)
	e.body = binary.AppendVarint(e.body, int64(h.UID.Revision()-e.lastRevision))
	e.lastRevision = h.UID.Revision()
	e.appendOptional(h.Owner)
	e.keys = slices.AppendSeq(e.keys[:0], maps.Keys(h.Labels))
	slices.Sort(e.keys)
	e.body = binary.AppendUvarint(e.body, uint64(len(e.keys)))
	for _, key := range e.keys {
		e.appendOptional(key)
		e.appendOptional(h.Labels[key])
	}
	clear(e.keys)
}

// appendOptional writes a text of a head, which may be empty.
func (e *Encoder) appendOptional(s string) {
	if s == "" {
		e.body = append(e.body, 0)
		return
	}
	e.body = append(e.body, 1)
	e.appendText(roleHead, familyOther, cut(s, maxText))
}

func isBlank(ev *plimsoll.Event) bool {
	return ev.Type == 0 && ev.Change == 0 && ev.Detail == 0 && ev.Object == "" && ev.Reference == "" &&
		ev.Message == "" &&
		len(ev.Resources) == 0 && ev.Head == nil
}

// cut shortens s to at most limit bytes, at the end of a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const dots = "..."
	end := limit - len(dots)
	for range utf8.UTFMax - 1 {
		if utf8.RuneStart(s[end]) {
			break
		}
		end--
	}
	return s[:end] + dots
}

// appendShape writes the properties that many events of a chunk share: type, change, detail,
// resources, and the set of fields that follow.
func (e *Encoder) appendShape(ev *plimsoll.Event) (flags uint64) {
	if ev.Object != "" {
		flags |= hasObject
	}
	if ev.Reference != "" {
		flags |= hasReference
	}
	if ev.Message != "" {
		flags |= hasMessage
	}
	if ev.Time != e.last {
		flags |= hasTime
	}
	if ev.Head != nil {
		flags |= hasHead
	}
	var resources, resourceCode uint64
	var blob string
	if ev.Resources != nil {
		flags |= hasResources
		resources, blob = e.resourceIndex(ev.Resources)
		if blob == "" {
			resourceCode = resources + 1
		}
	}
	// no chunk has 2^26 different resources
	key := uint64(ev.Type) | uint64(ev.Change)<<8 | uint64(ev.Detail)<<16 | flags<<32 | resources<<38
	if i, ok := e.shapes[key]; ok {
		e.body = binary.AppendUvarint(e.body, i+1)
		return flags
	}
	e.shapes[key] = uint64(len(e.shapes))
	i := slices.Index(usualShapes[:], usual{ev.Type, ev.Change, ev.Detail, flags})
	switch {
	case i >= 0:
		e.body = append(e.body, 0, usualKind+byte(i))
	case ev.Type < 8 && ev.Change < 8:
		e.body = append(e.body, 0, byte(ev.Change)*8+byte(ev.Type))
	default:
		e.body = append(e.body, 0, rareKind, byte(ev.Type), byte(ev.Change))
	}
	if i < 0 {
		e.body = binary.AppendUvarint(e.body, uint64(ev.Detail)<<numFlags|flags)
	}
	if flags&hasResources != 0 {
		e.body = binary.AppendUvarint(e.body, resourceCode)
		e.body = append(e.body, blob...)
	}
	return flags
}

// resourceIndex returns the index of r in this chunk and, if r is new there, its packed form.
func (e *Encoder) resourceIndex(r plimsoll.Resources) (index uint64, blob string) {
	known := e.find(r)
	if known == nil {
		known = e.learn(r)
	}
	if known.chunk == e.chunk {
		return known.index, ""
	}
	known.chunk = e.chunk
	var ok bool
	if known.index, ok = e.blobs[known.blob]; ok {
		return known.index, ""
	}
	known.index = uint64(len(e.blobs))
	e.blobs[known.blob] = known.index
	return known.index, known.blob
}

func (e *Encoder) find(r plimsoll.Resources) *knownResources {
	for i := range e.recent {
		if k := &e.recent[i]; k.blob != "" && k.is(r) {
			return k
		}
	}
	return nil
}

func (k *knownResources) is(r plimsoll.Resources) bool {
	if len(k.names) != len(r) {
		return false
	}
	for i, name := range k.names {
		if amount, ok := r[name]; !ok || amount != k.amounts[i] {
			return false
		}
	}
	return true
}

func (e *Encoder) learn(r plimsoll.Resources) *knownResources {
	k := &e.recent[e.nextRecent]
	e.nextRecent = (e.nextRecent + 1) % len(e.recent)
	e.sorted = slices.AppendSeq(e.sorted[:0], maps.Keys(r))
	slices.Sort(e.sorted)
	k.names, k.amounts, k.chunk = append(k.names[:0], e.sorted...), k.amounts[:0], e.chunk-1
	blob := binary.AppendUvarint(e.packed[:0], uint64(len(r)))
	for _, name := range k.names {
		k.amounts = append(k.amounts, r[name])
		if i := slices.Index(usualNames[:], name); i >= 0 {
			blob = append(blob, byte(i))
		} else {
			blob = binary.AppendUvarint(blob, uint64(len(usualNames)+len(name)))
			blob = append(blob, name...)
		}
		blob = binary.AppendVarint(blob, r[name])
	}
	e.packed, k.blob = blob, string(blob)
	return k
}

func (e *Encoder) appendText(role int, of family, s string) {
	last := e.roles[role]
	switch n := uint64(len(e.texts)); {
	case last < n && e.texts[last] == s:
		e.body = append(e.body, byte(numFamilies))
		return
	case last+1 < n && e.texts[last+1] == s:
		e.body = append(e.body, byte(numFamilies)+2) // zigzag(1)
		e.roles[role] = last + 1
		return
	}
	if i, ok := e.index[s]; ok {
		e.body = binary.AppendUvarint(e.body, uint64(numFamilies)+zigzag(int64(i-last)))
		e.roles[role] = i
		return
	}
	from, shared := of, sharedPrefix(e.newest[of], s)
	if other := relatedFamily[of]; other != of {
		if n := sharedPrefix(e.newest[other], s); n > shared {
			from, shared = other, n
		}
	}
	e.body = append(e.body, byte(from))
	e.body = binary.AppendUvarint(e.body, uint64(shared))
	e.body = binary.AppendUvarint(e.body, uint64(len(s)-shared))
	e.body = append(e.body, s[shared:]...)
	i := uint64(len(e.texts))
	e.index[s], e.roles[role], e.newest[of] = i, i, s
	e.texts = append(e.texts, s)
}

func zigzag(n int64) uint64 { return uint64(n<<1) ^ uint64(n>>63) }

func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Finish appends the packed chunk to dst and begins the next one. Without events it appends
// nothing.
func (e *Encoder) Finish(dst []byte) []byte {
	if e.count > 0 {
		dst = append(dst, version)
		dst = binary.AppendUvarint(dst, e.count)
		dst = binary.AppendVarint(dst, e.first)
		dst = append(dst, e.body...)
	}
	e.Reset()
	return dst
}

// A large chunk leaves large maps, and clearing one costs its size. The maps are made anew when
// shrinkAfter chunks in a row used less than one part in shrinkPart of them.
const (
	shrinkAfter = 64
	shrinkPart  = 32
)

// Reset drops the events of the unfinished chunk.
func (e *Encoder) Reset() {
	if e.count == 0 {
		return
	}
	e.peak = max(e.peak, len(e.texts))
	e.smallChunks++
	if len(e.texts)*shrinkPart >= e.peak {
		e.smallChunks = 0
	}
	if e.smallChunks >= shrinkAfter {
		e.makeTables()
	} else {
		clear(e.shapes)
		clear(e.blobs)
		clear(e.index)
	}
	clear(e.texts)
	clear(e.newest[:])
	clear(e.roles[:])
	e.texts, e.body, e.count, e.lastRevision = e.texts[:0], e.body[:0], 0, 0
	e.chunk++
}

func (e *Encoder) makeTables() {
	e.shapes = make(map[uint64]uint64)
	e.blobs = make(map[string]uint64)
	e.index = make(map[string]uint64)
	e.peak, e.smallChunks = 0, 0
}
