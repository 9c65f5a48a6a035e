package placement

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// class is a set of servers whose records are equal but for the id. A filter that looks at records
// only is asked once for each class and request.
type class struct {
	open     bool    // takes instances: set up, running, without a fault and not reserved
	servers  int     // number of servers of the class
	platform int64   // Unix time of the platform; noTime: none
	reboot   int64   // Unix time of the next reboot; noTime: none
	offers   *offers // nil: no ratio and nothing held back, so that free is capacity minus used
	whole    Amounts // capacity
	key      string  // from appendClassKey
	record   Server  // without id and instances
}

const noTime = math.MinInt64

// offers are the amounts that servers of a class offer when these differ from their capacity.
type offers struct {
	whole [plimsoll.MaxResourceNames]float64 // capacity without the reserve
	ratio [plimsoll.MaxResourceNames]float64 // over-provisioning; 1 if there is none
}

// free returns the amount left of a resource when used is booked.
func (c *class) free(i int, used int64) int64 {
	if c.offers == nil {
		return c.whole[i] - used
	}
	return counted(math.Floor(c.offers.whole[i] - float64(used)/c.offers.ratio[i]))
}

// fullWith reports whether a server of the class is full with so many instances.
func (c *class) fullWith(instances uint32) bool {
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
			o.ratio[i] = effectiveRatio(r)
		}
		if r := s.Reserve[names.Name(i)]; r > 0 {
			o.whole[i] *= 1 - r
		}
	}
	return o
}

// appendClassKey appends the parts of a record that make its class.
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
