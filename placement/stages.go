package placement

// Stages returns every stage that the package has, in the order of RFD 60's chain. Programs add
// their own to the list.
func Stages() []Stage {
	var list []Stage
	for _, part := range [][]Stage{recordStages(), loadStages(), roomStages(), batchStages(), scoreStages()} {
		list = append(list, part...)
	}
	return list
}
