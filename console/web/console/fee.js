/** Returns the number of a currency's digits behind the point. The service refuses an unknown currency. */
export function fractionDigits(currency) {
  try {
    return new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits;
  } catch {
    return 0;
  }
}

/** Returns a typed amount in the currency's minor unit, or NaN. It reads the digits, because 0.1 is not exact in a double. */
export function minorUnits(text, currency) {
  const digits = fractionDigits(currency);
  // A comma is between thousands only: where it is written for a point, 350,00 would be a hundredfold.
  const [, typed, fraction = ""] = /^(\d+|\d{1,3}(?:[,\s]\d{3})+)(?:\.(\d+))?$/.exec(text.trim()) ?? [];
  const whole = typed?.replaceAll(/\D/g, "");
  const amount = whole === undefined || fraction.length > digits ? NaN : Number(whole + fraction.padEnd(digits, "0"));
  return Number.isSafeInteger(amount) ? amount : NaN;
}

/** Returns the error text for an invalid amount. */
export const amountHint = (currency) => (fractionDigits(currency) ? "must be an amount like 350.00" : "must be a whole number like 350000");
