package placement

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// class is what servers have in common whose records say the same but for the id. A filter that
// looks at records only is asked once for each class and request.
type class struct {
	open     bool
	servers  int     // how many are of the class
	platform int64   // Unix time of the platform; noTime: none
	reboot   int64   // when the next reboot is to be; noTime: none
	offers   *offers // nil: no ratio and nothing kept back, so that free is capacity minus used
	whole    Amounts // capacity
	key      string
	record   Server // without id and instances
}

const noTime = math.MinInt64

// offers is what servers of a class offer if that is not their capacity.
type offers struct {
	whole [plimsoll.MaxResourceNames]float64 // capacity without what is kept back
	ratio [plimsoll.MaxResourceNames]float64 // 1 if there is none
}

// free returns what is left of a resource after used.
func (c *class) free(i int, used int64) int64 {
	if c.offers == nil {
		return c.whole[i] - used
	}
	return counted(math.Floor(c.offers.whole[i] - float64(used)/c.offers.ratio[i]))
}

// crowded reports whether so many instances are as many as a server of the class takes.
func (c *class) crowded(instances uint32) bool {
	most := c.record.MaxTasks
	return most > 0 && instances >= uint32(most)
}

func newClass(names *Names, key string, s *Server) *class {
	c := &class{record: *s, key: key}
	c.record.ID, c.record.Instances = "", nil
	c.open = s.Setup && s.Status == StatusRunning && s.Fault == "" && s.Reserved == ""
	if s.Fault == "" {
		c.whole, _ = names.Amounts(s.Capacity)
	}
	c.platform, c.reboot = noTime, noTime
	if t, err := time.Parse(plimsoll.PlatformLayout, s.Platform); err == nil {
		c.platform = t.Unix()
	}
	if s.NextReboot != 0 && s.NextReboot >= s.LastBoot {
		c.reboot = s.NextReboot
	}
	if len(s.Overprovision)+len(s.Reserve) > 0 {
		c.offers = newOffers(names, &c.whole, s)
	}
	return c
}

func newOffers(names *Names, whole *Amounts, s *Server) *offers {
	o := &offers{}
	for i := range whole {
		o.ratio[i], o.whole[i] = 1, float64(whole[i])
		if i >= names.Len() {
			continue
		}
		if r := s.Overprovision[names.Name(i)]; r > 0 {
			o.ratio[i] = promised(r)
		}
		if r := s.Reserve[names.Name(i)]; r > 0 {
			o.whole[i] *= 1 - r
		}
	}
	return o
}

// appendClassKey appends what distinguishes the class of a server.
func appendClassKey(b []byte, s *Server) []byte {
	flags := byte(0)
	for i, set := range [...]bool{s.Setup, s.Headnode, s.Reservoir, s.Networks != nil} {
		if set {
			flags |= 1 << i
		}
	}
	b = append(b, flags)
	for _, text := range [...]string{s.Status, s.Reserved, s.Fault, s.Release, s.Platform} {
		b = appendText(b, text)
	}
	b = binary.AppendVarint(b, s.LastBoot)
	b = binary.AppendVarint(b, s.NextReboot)
	b = binary.AppendVarint(b, int64(s.MaxTasks))
	for _, name := range s.Capacity.Names() {
		b = binary.AppendVarint(appendText(b, name), s.Capacity[name])
	}
	b = append(b, 0)
	for _, ratios := range [...]map[string]float64{s.Overprovision, s.Reserve} {
		for _, name := range sortedKeys(ratios) {
			b = binary.BigEndian.AppendUint64(appendText(b, name), math.Float64bits(ratios[name]))
		}
		b = append(b, 0)
	}
	for _, name := range sortedKeys(s.Networks) {
		b = appendText(b, name)
		b = append(b, map[bool]byte{false: 1, true: 2}[s.Networks[name]])
	}
	b = append(b, 0)
	for _, name := range sortedKeys(s.Labels) {
		b = appendText(appendText(b, name), s.Labels[name])
	}
	b = append(b, 0)
	for _, name := range sortedKeys(s.Traits) {
		b = appendTrait(appendText(b, name), s.Traits[name])
	}
	return b
}

func appendTrait(b []byte, t plimsoll.Trait) []byte {
	if t.Words == nil {
		return append(b, map[bool]byte{false: 0xff, true: 0xfe}[t.Flag])
	}
	b = binary.AppendUvarint(b, uint64(len(t.Words)))
	for _, w := range t.Words {
		b = appendText(b, w)
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))+1), text...)
}
