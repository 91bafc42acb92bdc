package v1alpha1

// driverLabelLength is the number of characters of a driver's digest in LabelDriver and in names that are derived from it.
const driverLabelLength = 12

// DriverLabelValue returns the value of LabelDriver for a driver's digest. It is empty for an empty digest.
func DriverLabelValue(digest string) string {
	return digest[:min(driverLabelLength, len(digest))]
}
