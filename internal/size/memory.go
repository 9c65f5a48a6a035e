package size

import "reflect"

// Memory returns the approximate number of bytes that a value of the vocabulary takes in memory. A
// pointer is followed. Small allocations are rounded up as the allocator does. A thousand texts of
// one byte therefore count much more than as a record.
func Memory(v any) int {
	value := reflect.ValueOf(v)
	if value.Kind() != reflect.Pointer {
		return int(value.Type().Size()) + behind(value)
	}
	return behind(value)
}

const (
	smallest = 8  // bytes of the smallest allocation
	mapRow   = 48 // bytes of an empty map
)

// behind returns the bytes that a value refers to, without the value itself.
func behind(v reflect.Value) int {
	sum := 0
	switch v.Kind() {
	case reflect.String:
		return rounded(v.Len())
	case reflect.Pointer:
		if !v.IsNil() {
			return int(v.Type().Elem().Size()) + behind(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			sum += behind(v.Field(i))
		}
	case reflect.Slice:
		sum = rounded(v.Len() * int(v.Type().Elem().Size()))
		for i := range v.Len() {
			sum += behind(v.Index(i))
		}
	case reflect.Map:
		if v.Len() > 0 {
			sum = mapRow + 2*v.Len()*int(v.Type().Key().Size()+v.Type().Elem().Size()) // it is half full
		}
		for entry := v.MapRange(); entry.Next(); {
			sum += behind(entry.Key()) + behind(entry.Value())
		}
	}
	return sum
}

func rounded(n int) int { return (n + smallest - 1) / smallest * smallest }
