package v1alpha1

// driverLabelLength is how many characters of a driver's digest the label LabelDriver, and names made from it, carry.
const driverLabelLength = 12

// DriverLabelValue returns the value of LabelDriver for a driver's digest. It is empty for an empty digest.
func DriverLabelValue(digest string) string {
	return digest[:min(driverLabelLength, len(digest))]
}
