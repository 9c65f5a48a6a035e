package rest

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// vcore is YuniKorn's name for cpu. Both count milli-cores.
const vcore = "vcore"

// appendHead appends the part of the answer before its records, as YuniKorn's encoder writes it.
func appendHead(dst []byte, instance string, low, high uint64) []byte {
	dst = append(dst, `{"InstanceUUID":`...)
	dst = appendString(dst, instance)
	dst = append(dst, `,"LowestID":`...)
	dst = strconv.AppendUint(dst, low, 10)
	dst = append(dst, `,"HighestID":`...)
	dst = strconv.AppendUint(dst, high, 10)
	return append(dst, `,"EventRecords":`...)
}

// recordRenderer appends events as JSON. It remembers how the resources of a pass are written,
// because the events of a chunk share them.
type recordRenderer struct {
	known    map[uintptr]knownResources // by the address of the map
	timeOf   int64                      // of the event before, as in timeText
	timeText []byte
}

// knownResources keeps the map from being freed, so that no other gets its address.
type knownResources struct {
	of   plimsoll.Resources
	text []byte
}

// knownMost bounds the resources that a pass remembers.
const knownMost = 256

// begin begins a pass.
func (w *recordRenderer) begin() { clear(w.known) }

// append appends one event. Zero values are left out, except for resource, which is always written.
// state is the state of its object as JSON; nil: it is left out.
func (w *recordRenderer) append(dst []byte, ev *plimsoll.Event, state []byte) []byte {
	dst = append(dst, '{')
	dst = appendNumberField(dst, `"type":`, int64(ev.Type))
	dst = appendTextField(dst, `"objectID":`, ev.Object)
	dst = appendTextField(dst, `"message":`, ev.Message)
	dst = w.time(dst, ev.Time)
	dst = appendNumberField(dst, `"eventChangeType":`, int64(ev.Change))
	dst = appendNumberField(dst, `"eventChangeDetail":`, int64(ev.Detail))
	dst = appendTextField(dst, `"referenceID":`, ev.Reference)
	dst = append(dst, `"resource":`...)
	dst = w.resources(dst, ev.Resources)
	if state != nil {
		dst = appendString(append(dst, `,"state":`...), string(state))
	}
	return append(dst, '}')
}

// time appends the time of an event. Most events happen in the same turn as the one before.
func (w *recordRenderer) time(dst []byte, t int64) []byte {
	if t != w.timeOf || w.timeText == nil {
		w.timeOf, w.timeText = t, appendNumberField(w.timeText[:0], `"timestampNano":`, t)
	}
	return append(dst, w.timeText...)
}

func (w *recordRenderer) resources(dst []byte, r plimsoll.Resources) []byte {
	if len(r) == 0 {
		return append(dst, "{}"...)
	}
	address := reflect.ValueOf(r).Pointer()
	if known, has := w.known[address]; has {
		return append(dst, known.text...)
	}
	from := len(dst)
	dst = appendResources(dst, r)
	if w.known == nil {
		w.known = map[uintptr]knownResources{}
	}
	if len(w.known) >= knownMost {
		clear(w.known)
	}
	w.known[address] = knownResources{r, slices.Clone(dst[from:])}
	return dst
}

func appendNumberField(dst []byte, key string, value int64) []byte {
	if value == 0 {
		return dst
	}
	dst = append(dst, key...)
	dst = strconv.AppendInt(dst, value, 10)
	return append(dst, ',')
}

func appendTextField(dst []byte, key, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(dst, key...)
	dst = appendString(dst, value)
	return append(dst, ',')
}

// appendResources writes the amounts in the order of YuniKorn's names. A custom resource named
// vcore is left out in favour of cpu.
func appendResources(dst []byte, r plimsoll.Resources) []byte {
	names := r.Names()
	if i := slices.Index(names, plimsoll.CPU); i >= 0 {
		names = slices.DeleteFunc(names, func(name string) bool { return name == vcore })
		i = slices.Index(names, plimsoll.CPU)
		names[i] = vcore
		slices.Sort(names)
	}
	dst = append(dst, `{"resources":{`...)
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, name)
		dst = append(dst, ':')
		dst = appendQuantity(dst, amountOf(r, name))
	}
	return append(dst, "}}"...)
}

func amountOf(r plimsoll.Resources, name string) int64 {
	if cpu, has := r[plimsoll.CPU]; has && name == vcore {
		return cpu
	}
	return r[name]
}

// appendQuantity leaves out a zero, as YuniKorn's protobuf messages do.
func appendQuantity(dst []byte, value int64) []byte {
	if value == 0 {
		return append(dst, "{}"...)
	}
	dst = append(dst, `{"value":`...)
	dst = strconv.AppendInt(dst, value, 10)
	return append(dst, '}')
}

// escaped holds the bytes for which a string does not stand in JSON as it is: all but the printable
// ASCII characters, without those that encoding/json escapes.
var escaped = func() (e [256]bool) {
	for c := range e {
		e[c] = c < ' ' || c > '~' || strings.ContainsRune(`"\<>&`, rune(c))
	}
	return e
}()

// appendString quotes s as encoding/json does: it escapes < > & and replaces invalid UTF-8.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if escaped[s[i]] {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic(err) // a broken invariant: every string has a JSON form
			}
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
