package placement

// Stages returns all stages of the package, in the order of RFD 60's chain. A program may append
// its own:
//
//	stages := append(placement.Stages(), placement.Stage{
//		Name: "has-gpu", ByClass: true,
//		Keep: func(v *placement.View) bool { return v.Record().Labels["gpu"] != "" },
//	})
//	chain, err := placement.NewChain(expression, stages, nil, placement.DefaultSettings())
func Stages() []Stage {
	var list []Stage
	for _, part := range [][]Stage{recordStages(), loadStages(), roomStages(), batchStages(), scoreStages()} {
		list = append(list, part...)
	}
	return list
}
