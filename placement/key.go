package placement

import (
	"encoding/binary"
	"math"

	"github.com/plimsoll-dev/plimsoll"
)

// AppendKey appends bytes that are equal for two requests if and only if no chain can tell the
// requests apart.
func (r *Request) AppendKey(b []byte) []byte {
	b = appendText(b, r.Owner)
	for _, amounts := range [...]plimsoll.Resources{r.Resources, r.Needs} {
		for _, name := range amounts.Names() {
			b = binary.AppendVarint(appendText(b, name), amounts[name])
		}
		b = append(b, 0)
	}
	flags := byte(0)
	if r.OwnOnly {
		flags |= 1
	}
	if r.AnyClass {
		flags |= 2
	}
	c, p := &r.Constraints, &r.Preferences
	if c.Networks != nil {
		flags |= 4
	}
	b = append(b, flags, byte(c.Reservoir), byte(p.Strategy))
	if len(c.Spread)+len(p.Spread) > 0 {
		b = appendText(appendText(b, r.Job), r.Group)
	}
	for _, name := range sortedKeys(c.Traits) {
		b = appendTrait(appendText(b, name), c.Traits[name])
	}
	b = append(b, 0)
	for _, alternatives := range c.Networks {
		b = append(appendTexts(b, alternatives), 0)
	}
	b = append(b, 0)
	for _, ranges := range [...][]plimsoll.PlatformRange{{c.Platform}, r.Platforms} {
		b = binary.AppendUvarint(b, uint64(len(ranges)))
		for i := range ranges {
			b = appendTable(appendTable(b, ranges[i].Min), ranges[i].Max)
		}
	}
	b = appendTexts(b, c.VolumesFrom)
	b = appendTexts(b, c.Nodes)
	for _, list := range [...][]plimsoll.Selector{c.Near, c.Far, p.Near, p.Far} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, s := range list {
			b = appendText(appendText(appendText(b, s.Task), s.Job), s.Label)
		}
	}
	for _, list := range [...][]plimsoll.Spread{c.Spread, p.Spread} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, s := range list {
			b = binary.AppendVarint(appendText(b, s.By), int64(s.MaxSkew))
		}
	}
	for _, name := range sortedKeys(c.Class) {
		b = binary.BigEndian.AppendUint64(appendText(b, name), math.Float64bits(c.Class[name]))
	}
	b = appendText(append(b, 0), c.Where)
	for _, x := range r.Except {
		b = appendText(appendText(b, x.Server), x.Why)
	}
	return b
}

func appendTexts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, text := range list {
		b = appendText(b, text)
	}
	return b
}

func appendTable(b []byte, table map[string]string) []byte {
	for _, key := range sortedKeys(table) {
		b = appendText(appendText(b, key), table[key])
	}
	return append(b, 0)
}
